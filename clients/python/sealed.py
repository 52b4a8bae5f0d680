"""Sealed messages for Python: payloads that only those with a key can read, signed by who sent them.

One module over `cryptography` (48 or newer). The format: docs/reference/sealed-messages.md; the tests:
crates/seal/vectors.json.

    ring = KeyRing.parse(open("news.keys").read())
    payload = ring.seal("news", b"hello")
    print(ring.open("news", payload).payload)
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import re
import struct
import time
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

MAGIC, VERSION = 0xF8, 1
FIXED_BYTES, ID_BYTES, POINT_BYTES, WRAPPED_BYTES, TAG_BYTES = 28, 8, 65, 48, 16
RECIPIENT_BYTES = ID_BYTES + POINT_BYTES + WRAPPED_BYTES
#: Most recipients of a message.
RECIPIENTS_MAX = 64

#: The name in the hash of an id, and the bytes, of each kind of key.
KINDS = {
    "sennit-channel-key": ("channel", 32),
    "sennit-recipient-private-key": ("recipient", 32 + POINT_BYTES),
    "sennit-recipient-key": ("recipient", POINT_BYTES),
    "sennit-signing-key": ("signing", 32),
    "sennit-verifying-key": ("signing", 32),
    "sennit-shared-signing-key": ("shared-signing", 32),
}

_HPKE = Suite(KEM.P256, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


class SealError(Exception):
    """Why a message is refused; `code` is the same as in the vectors."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _to_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _from_base64url(text: str) -> bytes | None:
    """Strict: no padding, no other letters, no bits that say nothing."""
    if not re.fullmatch(r"[A-Za-z0-9_-]*", text):
        return None
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        return None
    return data if _to_base64url(data) == text else None


def _public_of_seed(seed: bytes) -> bytes:
    return ed25519.Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def _point(public: ec.EllipticCurvePublicKey) -> bytes:
    return public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _private(pair: bytes) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(pair[:32], "big"), ec.SECP256R1())


def _public(point: bytes) -> ec.EllipticCurvePublicKey:
    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)


@dataclass(frozen=True)
class Key:
    """A key. Its `repr` shows none of it but its id."""

    kind: str
    data: bytes = field(repr=False)
    label: str
    id: bytes

    @staticmethod
    def parse(text: str, label: str = "") -> Key:
        """Reads `KIND:BASE64URL`."""
        kind, _, encoded = text.partition(":")
        if kind not in KINDS:
            raise SealError("no-key", f"it is no key: a key is KIND:BASE64URL, and KIND one of {', '.join(KINDS)}")
        data = _from_base64url(encoded)
        if data is None:
            raise SealError("no-key", f"the {kind} is not in base64url without padding")
        return Key.of(kind, data, label)

    @staticmethod
    def of(kind: str, data: bytes, label: str = "") -> Key:
        """The key of this kind with these bytes."""
        hashed_name, length = KINDS[kind]
        if len(data) != length:
            raise SealError("no-key", f"the {kind} has {len(data)} bytes, not {length}")
        hashed = data
        try:
            if kind == "sennit-recipient-key":
                _public(data)
            elif kind == "sennit-recipient-private-key":
                hashed = data[32:]
                if _point(_private(data).public_key()) != hashed:
                    raise ValueError
            elif kind == "sennit-signing-key":
                hashed = _public_of_seed(data)
        except ValueError:
            wrong = "is not one: no such point or number exists, or its halves do not fit"
            raise SealError("no-key", f"the {kind} {wrong}") from None
        prefix = b"sennit key id v1\0" + hashed_name.encode() + b"\0"
        return Key(kind, data, label, hashlib.sha256(prefix + hashed).digest()[:ID_BYTES])

    @staticmethod
    def generate(kind: str) -> Key:
        """A new secret key."""
        if kind == "sennit-recipient-private-key":
            private = ec.generate_private_key(ec.SECP256R1())
            number = private.private_numbers().private_value.to_bytes(32, "big")
            return Key.of(kind, number + _point(private.public_key()))
        if kind not in ("sennit-channel-key", "sennit-signing-key", "sennit-shared-signing-key"):
            raise SealError("no-key", f"{kind} is no kind of a secret key")
        return Key.of(kind, os.urandom(32))

    def text(self) -> str:
        """The key as text. Of a secret key it is the secret."""
        return f"{self.kind}:{_to_base64url(self.data)}"

    def public(self) -> Key | None:
        """The half that others may see, of a pair."""
        if self.kind == "sennit-recipient-private-key":
            return Key.of("sennit-recipient-key", self.data[32:], self.label)
        if self.kind == "sennit-signing-key":
            return Key.of("sennit-verifying-key", _public_of_seed(self.data), self.label)
        return None


@dataclass(frozen=True)
class Opened:
    """A message that was opened; `signed_by` is the key whose signature was checked."""

    payload: bytes
    id: bytes
    sent_at_ms: int
    signed_by: Key | None


def _long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _label(name: str) -> bytes:
    return f"sennit sealed v1 {name}\0".encode()


def _signed(topic: str, head: bytes, payload: bytes) -> bytes:
    return _label("signature") + _long(topic.encode()) + _long(head) + payload


def _recipient_info(message_id: bytes, topic: str) -> bytes:
    return _label("recipient") + message_id + topic.encode()


def _content_aad(topic: str, head: bytes) -> bytes:
    return _label("content") + _long(topic.encode()) + head


def _message_cipher(secret: bytes, message_id: bytes, topic: str) -> tuple[AESGCM, bytes]:
    """The key of one message, with which nothing else is encrypted, and its nonce."""
    info = _label("key") + topic.encode()
    derived = HKDF(algorithm=hashes.SHA256(), length=44, salt=message_id, info=info).derive(secret)
    return AESGCM(derived[:32]), derived[32:]


@dataclass
class KeyRing:
    """The keys of a file, `KEY [LABEL]` on each line. The first of a kind seals or signs."""

    keys: list[Key] = field(default_factory=list)

    @staticmethod
    def parse(text: str) -> KeyRing:
        """Reads the lines of a file of keys."""
        ring = KeyRing()
        for number, line in enumerate(text.splitlines(), 1):
            words = line.strip().split(None, 1)
            if not words or words[0].startswith("#"):
                continue
            try:
                ring.keys.append(Key.parse(words[0], words[1] if len(words) > 1 else ""))
            except SealError as error:
                raise SealError(error.code, f"line {number}: {error}") from None
        return ring

    def of_kind(self, *kinds: str) -> list[Key]:
        return [key for key in self.keys if key.kind in kinds]

    def seal(self, topic: str, payload: bytes, now_ms: int | None = None, message_id: bytes | None = None) -> bytes:
        """Seals a payload for the readers of a topic. An id may never be given twice: give none."""
        channels, recipients = self.of_kind("sennit-channel-key"), self.of_kind("sennit-recipient-key")
        if channels and recipients:
            text = "there are channel keys and keys of recipients: seal for a channel or for recipients"
            raise SealError("two-audiences", text)
        if not channels and not recipients:
            text = "there is neither a channel key nor the key of a recipient among the keys"
            raise SealError("no-audience", text)
        if len(recipients) > RECIPIENTS_MAX:
            text = f"there are {len(recipients)} recipients, and {RECIPIENTS_MAX} may be at most"
            raise SealError("too-many-recipients", text)
        now_ms = int(time.time() * 1000) if now_ms is None else now_ms
        message_id = os.urandom(16) if message_id is None else message_id
        head = bytes([MAGIC, VERSION, len(recipients), 0]) + struct.pack(">Q", now_ms) + message_id
        if channels:
            secret = channels[0].data
            head += channels[0].id
        else:
            secret = os.urandom(32)
            info = _recipient_info(message_id, topic)
            for recipient in recipients:
                head += recipient.id + _HPKE.encrypt(secret, _public(recipient.data), info=info)
        content = self._signature(_signed(topic, head, payload)) + payload
        cipher, nonce = _message_cipher(secret, message_id, topic)
        return head + cipher.encrypt(nonce, content, _content_aad(topic, head))

    def seal_json(self, topic: str, payload: bytes) -> dict[str, str]:
        """The same as a value for JSON, for clients that publish JSON."""
        return {"sealed": _to_base64url(self.seal(topic, payload))}

    def _signature(self, signed: bytes) -> bytes:
        signers = self.of_kind("sennit-signing-key", "sennit-shared-signing-key")
        if not signers:
            return b"\0"
        signer = signers[0]
        if signer.kind == "sennit-signing-key":
            private = ed25519.Ed25519PrivateKey.from_private_bytes(signer.data)
            return b"\1" + signer.id + private.sign(signed)
        return b"\2" + signer.id + hmac.digest(signer.data, signed, "sha256")

    def open(self, topic: str, message: bytes | str | dict) -> Opened:
        """Opens a message of a topic: bytes, the data of a publication, or the text of it.

        If the ring has keys that check signatures, the message has to be signed with one of them.
        """
        message = _bytes_of(message)
        head, sent_at_ms, message_id, channel, recipients = _read(message)
        secret = self._secret(topic, message_id, channel, recipients)
        cipher, nonce = _message_cipher(secret, message_id, topic)
        try:
            content = cipher.decrypt(nonce, message[len(head) :], _content_aad(topic, head))
        except InvalidTag:
            raise _altered() from None
        kind, signer, signature, payload = _take_signature(content)
        checking = self._checking_keys()
        if not checking:
            return Opened(payload, message_id, sent_at_ms, None)
        if kind == 0:
            raise SealError("not-signed", "the message is not signed")
        wanted = "sennit-verifying-key" if kind == 1 else "sennit-shared-signing-key"
        key = next((key for key in checking if key.id == signer and key.kind == wanted), None)
        if key is None:
            text = f"the message is signed with the key {signer.hex()}, which is not among the keys"
            raise SealError("unknown-signer", text)
        signed = _signed(topic, head, payload)
        if kind == 1:
            try:
                ed25519.Ed25519PublicKey.from_public_bytes(key.data).verify(signature, signed)
                is_right = True
            except (InvalidSignature, ValueError):
                is_right = False
        else:
            is_right = hmac.compare_digest(signature, hmac.digest(key.data, signed, "sha256"))
        if not is_right:
            raise SealError("wrong-signature", f"the signature with the key {key.id.hex()} is wrong")
        return Opened(payload, message_id, sent_at_ms, key)

    def _checking_keys(self) -> list[Key]:
        own = [key.public() for key in self.of_kind("sennit-signing-key")]
        return self.of_kind("sennit-verifying-key", "sennit-shared-signing-key") + own

    def _secret(self, topic: str, message_id: bytes, channel: bytes | None, recipients: list) -> bytes:
        if channel is not None:
            for key in self.of_kind("sennit-channel-key"):
                if key.id == channel:
                    return key.data
            text = f"the message is sealed for the channel key {channel.hex()}, which is not among the keys"
            raise SealError("no-channel-key", text)
        ours = {key.id: key for key in self.of_kind("sennit-recipient-private-key")}
        for key_id, wrapped in recipients:
            if key_id in ours:
                info = _recipient_info(message_id, topic)
                try:
                    return _HPKE.decrypt(wrapped, _private(ours[key_id].data), info=info)
                except (InvalidTag, ValueError):
                    raise _altered() from None
        text = f"the message is sealed for others: none of its {len(recipients)} recipients is among the keys"
        raise SealError("no-recipient", text)


def _altered() -> SealError:
    return SealError("altered", "the sealed message was altered, or it was sealed for another topic")


def _bytes_of(message: bytes | str | dict) -> bytes:
    if isinstance(message, bytes):
        if message[:1] == bytes([MAGIC]):
            return message
        message = message.decode("utf-8", "replace")
    if isinstance(message, str):
        try:
            message = json.loads(message)
        except ValueError:
            message = None
    if isinstance(message, dict) and len(message) == 1:
        text = message.get("sealed")
        # What the broker makes of bytes for clients that speak JSON: base64 with padding.
        if isinstance(message.get("b64data"), str):
            text = message["b64data"].replace("+", "-").replace("/", "_").rstrip("=")
        if isinstance(text, str):
            data = _from_base64url(text)
            if data is None:
                raise SealError("not-base64", "the sealed message is not in base64url without padding")
            return data
    raise SealError("not-sealed", "the message is not sealed")


def _read(message: bytes) -> tuple[bytes, int, bytes, bytes | None, list[tuple[bytes, bytes]]]:
    cut_off = SealError("truncated", "the sealed message is cut off")
    if message[:1] != bytes([MAGIC]):
        raise SealError("not-sealed", "the message is not sealed")
    if len(message) < 2:
        raise cut_off
    if message[1] != VERSION:
        text = f"the message is sealed in version {message[1]}, and this program opens version {VERSION}"
        raise SealError("unknown-version", text)
    if len(message) < FIXED_BYTES:
        raise cut_off
    count, flags, sent_at_ms = struct.unpack_from(">BBQ", message, 2)
    if flags:
        raise SealError("unknown-flags", f"the sealed message has flags that have no meaning: {flags}")
    if count > RECIPIENTS_MAX:
        text = f"the message is sealed for {count} recipients, and may be for {RECIPIENTS_MAX} at most"
        raise SealError("too-many-recipients", text)
    end = FIXED_BYTES + (count * RECIPIENT_BYTES if count else ID_BYTES)
    # The content has at least the byte that says whether it is signed.
    if len(message) <= end + TAG_BYTES:
        raise cut_off
    channel = None if count else message[FIXED_BYTES:end]
    starts = range(FIXED_BYTES, end, RECIPIENT_BYTES) if count else ()
    recipients = [(message[at : at + ID_BYTES], message[at + ID_BYTES : at + RECIPIENT_BYTES]) for at in starts]
    return message[:end], sent_at_ms, message[12:FIXED_BYTES], channel, recipients


def _take_signature(content: bytes) -> tuple[int, bytes, bytes, bytes]:
    kind = content[0]
    if kind == 0:
        return kind, b"", b"", content[1:]
    end = 1 + ID_BYTES + {1: 64, 2: 32}.get(kind, len(content))
    if end > len(content):
        raise SealError("unknown-signature", "the sealed message has no signature of a known kind in it")
    return kind, content[1 : 1 + ID_BYTES], content[1 + ID_BYTES : end], content[end:]
