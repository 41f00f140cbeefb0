/**
 * Parser of worker addresses that libucp packs (UCX: src/ucp/wireup/address.c, versions 1 and 2). Can hide a transport in an address: changes its name to
 * one that libucp does not know, so that libucp skips it.
 */

/** Low four bits of the first byte: the version. */
const VERSION_MASK = 0x0f;
const VERSION = { V1: 0, V2: 1 } as const;
/** Header flags. */
const HAS_NAME = 1;
const HAS_UUID = 2;
const HAS_CLIENT_ID = 4;
/** Highest bit: last device, interface or endpoint of its list. In the first byte of a device: it has no interfaces. */
const LAST = 0x80;
/** Flags in the second byte of a device: the named field follows. */
const HAS_PATHS = 0x40;
const HAS_SYSTEM_DEVICE = 0x20;
/** Flag in the length of an interface address: endpoint addresses follow. */
const HAS_ENDPOINTS = 0x40;
/** In place of the first byte of a device: the list is empty. */
const NO_DEVICES = 0xff;
const DEVICE_LENGTH_MASK = 0x1f;
const INTERFACE_LENGTH_MASK = 0x3f;
/** Sizes of the interface attributes in bytes, by version; in version 1 an index may follow them. */
const ATTRIBUTES_BYTES = { V1: [16, 17], V2: [8, 9] } as const;

/** Transport names in addresses are checksums (ucs_crc16_string). */
const CHECKSUMS = { posix: 0xd3a7, sysv: 0x538d } as const;
/** The checksum of the empty name: it matches no transport. */
const NO_TRANSPORT = 0;

/** A transport that can be hidden. */
export type HiddenTransport = keyof typeof CHECKSUMS;

/**
 * A copy of a worker address in which some transports are hidden.
 * @returns undefined if it has none of them, or its layout is not known
 */
export function withoutTransports(address: Uint8Array, names: readonly HiddenTransport[]): Uint8Array | undefined {
  const hidden: readonly number[] = names.map((name) => CHECKSUMS[name]);
  const copy = Uint8Array.from(address);
  const view = new DataView(copy.buffer);
  const found = (transportOffsets(address) ?? []).filter((offset) => hidden.includes(view.getUint16(offset, true)));
  for (const offset of found) view.setUint16(offset, NO_TRANSPORT, true);
  return found.length > 0 ? copy : undefined;
}

/** Offsets of the transport names; undefined if the layout is not known. */
function transportOffsets(address: Uint8Array): readonly number[] | undefined {
  const version = at(address, 0) & VERSION_MASK;
  const sizes = version === VERSION.V1 ? ATTRIBUTES_BYTES.V1 : version === VERSION.V2 ? ATTRIBUTES_BYTES.V2 : [];
  for (const attributesBytes of sizes) {
    const offsets = new AddressReader(address, version === VERSION.V2, attributesBytes).read();
    if (offsets !== undefined) return offsets;
  }
  return undefined;
}

function at(bytes: Uint8Array, offset: number): number {
  return bytes[offset] ?? Number.NaN;
}

/** Parses one address, assuming one size of the attributes. */
class AddressReader {
  readonly #bytes: Uint8Array;
  readonly #isV2: boolean;
  readonly #attributesBytes: number;
  readonly #offsets: number[] = [];
  #at = 0;

  constructor(bytes: Uint8Array, isV2: boolean, attributesBytes: number) {
    this.#bytes = bytes;
    this.#isV2 = isV2;
    this.#attributesBytes = attributesBytes;
  }

  /** @returns undefined if the address does not end where its layout ends */
  read(): readonly number[] | undefined {
    this.#readHeader();
    for (let isLast = false; !isLast && this.#isWithin; ) isLast = this.#readDevice();
    const rest = this.#bytes.subarray(this.#at);
    return this.#isWithin && rest.every((byte) => byte === 0) ? this.#offsets : undefined;
  }

  get #isWithin(): boolean {
    return this.#at <= this.#bytes.byteLength;
  }

  #readHeader(): void {
    const first = this.#byte();
    const flags = this.#isV2 ? this.#byte() : first >> 4;
    if ((flags & HAS_UUID) !== 0) this.#at += 8;
    if ((flags & HAS_CLIENT_ID) !== 0) this.#at += 8;
    if ((flags & HAS_NAME) !== 0) this.#skip(this.#byte());
  }

  /** @returns true for the last device */
  #readDevice(): boolean {
    const first = this.#byte();
    if (first === NO_DEVICES) return true;
    const isEmpty = (first & LAST) !== 0;
    if (this.#isV2 && (first & ~LAST) === 0x7f) this.#at += 1;
    const flags = this.#peek();
    const byteLength = this.#length(DEVICE_LENGTH_MASK);
    if ((flags & HAS_PATHS) !== 0) this.#at += 1;
    if ((flags & HAS_SYSTEM_DEVICE) !== 0) this.#at += 1;
    this.#skip(byteLength);
    for (let isLast = isEmpty; !isLast && this.#isWithin; ) isLast = this.#readInterface();
    return (flags & LAST) !== 0;
  }

  #readInterface(): boolean {
    this.#offsets.push(this.#at);
    this.#at += 2 + this.#attributesBytes;
    const flags = this.#peek();
    this.#skip(this.#length(INTERFACE_LENGTH_MASK));
    const hasEndpoints = (flags & HAS_ENDPOINTS) !== 0;
    for (let isLast = !hasEndpoints; !isLast && this.#isWithin; ) {
      this.#skip(this.#byte());
      isLast = (this.#byte() & LAST) !== 0;
    }
    return (flags & LAST) !== 0;
  }

  /** A length in the bits of a byte; in version 2 their largest value means that the length follows. */
  #length(mask: number): number {
    const length = this.#byte() & mask;
    return this.#isV2 && length === mask ? this.#byte() : length;
  }

  #peek(): number {
    return at(this.#bytes, this.#at);
  }

  #byte(): number {
    const value = this.#peek();
    this.#at += 1;
    return value;
  }

  #skip(byteLength: number): void {
    this.#at += byteLength;
  }
}
