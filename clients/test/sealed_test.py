"""The module for Python against the published vectors, and keys and messages of its own."""

import json
import os
import unittest

from sealed import Key, KeyRing, SealError

with open(os.environ["VECTORS"], encoding="utf-8") as file:
    VECTORS = json.load(file)


def ring_of(names):
    return KeyRing.parse("\n".join(f"{VECTORS['keys'][name]['text']} {name}" for name in names))


class Sealed(unittest.TestCase):
    def test_keys_have_the_ids_of_the_vectors(self):
        for name, key in VECTORS["keys"].items():
            parsed = Key.parse(key["text"])
            self.assertEqual((parsed.id.hex(), parsed.text()), (key["id"], key["text"]), name)
            self.assertNotIn(key["text"].split(":")[1], repr(parsed))

    def test_messages_are_opened(self):
        for vector in VECTORS["opened"]:
            ring, topic = ring_of(vector["open_with"]), vector["topic"]
            message = bytes.fromhex(vector["message"])
            for form in (message, vector["json"], json.loads(vector["json"])):
                opened = ring.open(topic, form)
                signed_by = opened.signed_by and opened.signed_by.id.hex()
                found = (opened.payload.hex(), opened.id.hex(), opened.sent_at_ms, signed_by)
                wanted = (vector["payload"], vector["id"], vector["sent_at_ms"], vector["signed_by"])
                self.assertEqual(found, wanted, vector["name"])
            again = ring_of(vector["seal_with"]).seal(
                topic, opened.payload, vector["sent_at_ms"], bytes.fromhex(vector["id"])
            )
            if "secret" in vector:
                self.assertEqual(again, message, vector["name"])
            self.assertEqual(ring.open(topic, again).payload, opened.payload)

    def test_refusals_have_their_codes(self):
        for vector in VECTORS["refused"]:
            with self.assertRaises(SealError, msg=vector["name"]) as refused:
                ring_of(vector["open_with"]).open(vector["topic"], bytes.fromhex(vector["message"]))
            self.assertEqual(refused.exception.code, vector["code"], vector["name"])

    def test_new_keys_seal_and_open(self):
        channel, signing = Key.generate("sennit-channel-key"), Key.generate("sennit-signing-key")
        recipient = Key.generate("sennit-recipient-private-key")
        for seals, opens in (
            ([channel, signing], [channel, signing.public()]),
            ([recipient.public(), signing], [recipient, signing.public()]),
        ):
            opened = KeyRing(opens).open("news", KeyRing(seals).seal_json("news", b"hello"))
            self.assertEqual((opened.payload, opened.signed_by), (b"hello", signing.public()))


unittest.main()
