// One file, one worker; time enough for a machine that does other work.
export default {
  test: { include: ["suite.test.mjs"], setupFiles: ["identity.setup.mjs"], testTimeout: 40_000, hookTimeout: 40_000, watch: false },
}
