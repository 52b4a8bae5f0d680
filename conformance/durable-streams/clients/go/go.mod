module sennit.dev/conformance/client-go

go 1.24

require github.com/durable-streams/durable-streams/packages/client-go v0.1.0
