/**
 * One side of a UCT test: one interface, memory of its memory domain, and the endpoint to the interface of the other side.
 */

import type { Context } from '../../../api/contract/context.ts';
import type { MemoryHandle } from '../../../api/contract/memory.ts';
import { Context as NativeContext } from '../../../ucp/core/context.ts';
import { MemoryHandle as NativeMemoryHandle } from '../../../ucp/mem/memory-handle.ts';
import type { OpenMd } from '../../../ucp/resources/resources.ts';
import { hasMemoryType, memoryTypeName } from '../../../ucs/memory/memory-type.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import { type Iface, IfaceFlag, type IfaceResource, type UctEndpoint } from '../../../uct/api/iface.ts';
import type { MdMemory, RemoteKey } from '../../../uct/api/memory.ts';
import { messageBytes, type TestSpec, unsupported } from '../spec.ts';
import { MemoryProbe } from './memory-probe.ts';
import { bytesOf, type Hello, hexOf, memoryTypeOf, TestContext } from './test-context.ts';

/** A memory domain and one of its resources. */
interface Found {
  readonly open: OpenMd;
  readonly resource: IfaceResource;
}

/** One side. */
export class UctSide {
  readonly spec: TestSpec;
  readonly iface: Iface;
  /** Source memory, in the form of the memory domain. */
  readonly source: MdMemory;
  readonly target: MdMemory;
  readonly sourceProbe: MemoryProbe;
  readonly targetProbe: MemoryProbe;
  readonly #opened: TestContext;
  readonly #found: Found;
  #endpoint: UctEndpoint | undefined;
  #rkey: RemoteKey | undefined;

  private constructor(spec: TestSpec, opened: TestContext) {
    this.spec = spec;
    this.#opened = opened;
    this.#found = find(spec, nativeMds(opened.context));
    const { open, resource } = this.#found;
    this.iface = open.md.openIface(resource);
    checkIface(spec, this.iface);
    this.source = this.#memory(opened.source);
    this.target = this.#memory(opened.target);
    const worker = opened.context.worker();
    this.sourceProbe = new MemoryProbe(opened.context, worker, opened.source);
    this.targetProbe = new MemoryProbe(opened.context, worker, opened.target);
  }

  /**
   * Opens a side.
   * @throws UcxError: see TestContext.open; ERR_INVALID_PARAM for an unknown transport or device; ERR_UNSUPPORTED if the transport does not support the test
   */
  static async open(spec: TestSpec): Promise<UctSide> {
    const isOfCard = spec.transport.startsWith('gaudi');
    const opened = await TestContext.open(spec, isOfCard || spec.sendMemory === 'gaudi' || spec.recvMemory === 'gaudi');
    try {
      return new UctSide(spec, opened);
    } catch (error) {
      await opened.close();
      throw error;
    }
  }

  /** True if the context has cards and they are emulated. */
  get emulated(): boolean {
    const { sendMemory, recvMemory, transport } = this.spec;
    const hasCard = transport.startsWith('gaudi') || sendMemory === 'gaudi' || recvMemory === 'gaudi';
    return hasCard && this.#opened.context.emulated;
  }

  greet(): Hello {
    const { md } = this.#found.open;
    const key = new Uint8Array(md.attributes.rkeyPackedBytes);
    if (this.spec.kind.operation !== 'am') md.mkeyPack(this.target, key, 0);
    return { address: hexOf(this.iface.address), key: hexOf(key) };
  }

  /**
   * Connects to the other side, or to itself.
   * @throws UcxError ERR_INVALID_PARAM, ERR_RKEY_MALFORMED, ERR_UNREACHABLE
   */
  connect(peer: Readonly<Record<string, unknown>>): void {
    this.#endpoint = this.iface.connect(bytesOf('address of the peer', peer['address']));
    const key = bytesOf('key of the peer', peer['key']);
    if (this.spec.kind.operation !== 'am') this.#rkey = this.#found.open.md.rkeyUnpack(key);
  }

  get endpoint(): UctEndpoint {
    if (this.#endpoint === undefined) throw invalidParam('side', 'must be connected', undefined);
    return this.#endpoint;
  }

  /** Key of the receive memory of the other side; active messages have none. */
  get rkey(): RemoteKey {
    if (this.#rkey === undefined) throw invalidParam('side', 'must be connected', undefined);
    return this.#rkey;
  }

  /** Such as `posix/memory`. */
  get carrier(): string {
    const { transport, device } = this.#found.resource;
    return `${transport}/${device}`;
  }

  async close(): Promise<void> {
    this.sourceProbe.close();
    this.targetProbe.close();
    this.#rkey?.release();
    this.#endpoint?.close();
    this.iface.close();
    await this.#opened.close();
  }

  #memory(handle: MemoryHandle): MdMemory {
    const memory = handle instanceof NativeMemoryHandle ? handle.mdMemory[this.#found.open.index] : undefined;
    if (memory !== undefined) return memory;
    throw unsupported(`${memoryTypeName(handle.memoryType)} memory`, `${this.carrier} does not register this memory`);
  }
}

const CARD_NAME = /^gaudi\d+$/;

/** The memory domains of this library. @throws UcxError ERR_UNSUPPORTED for a context over libucp, which has none */
function nativeMds(context: Context): readonly OpenMd[] {
  if (context instanceof NativeContext) return context.mds;
  throw unsupported(
    'a test of uct',
    `the engine ${context.engine.name} has no transports of this library: use UCX_ENGINE=native`,
  );
}

function find({ transport, device }: TestSpec, mds: readonly OpenMd[]): Found {
  const all = mds.flatMap((open) => open.resources.map((resource) => ({ open, resource })));
  const ofTransport = all.filter(
    ({ resource }) => resource.transport === transport || resource.aliases.includes(transport),
  );
  const names = all.map(({ resource }) => `${resource.transport}/${resource.device}`).join(', ');
  if (ofTransport.length === 0) throw invalidParam('-x', `must be one of the open transports (${names})`, transport);
  // Two sides on one host have different cards with the same name: each side uses its own.
  const isCard = CARD_NAME.test(device) && ofTransport.length === 1 && CARD_NAME.test(ofTransport[0]!.resource.device);
  const found = isCard ? ofTransport[0] : ofTransport.find(({ resource }) => resource.device === device);
  if (found === undefined) throw invalidParam('-d', `must be a device of the transport (${names})`, device);
  return found;
}

/** Rejects tests that the interface does not support, with the reason. */
function checkIface(spec: TestSpec, iface: Iface): void {
  const { attributes } = iface;
  const { kind, layout, sendMemory, recvMemory } = spec;
  const name = `${attributes.resource.transport}/${attributes.resource.device}`;
  const bytes = messageBytes(spec);
  const refuse = (reason: string): never => {
    throw unsupported(`${kind.name} -D ${layout} with ${bytes} bytes`, `${name} ${reason}`);
  };
  const { operation } = kind;
  if (operation === 'am') {
    const { shortBytesMax, bcopyBytesMax, zcopyBytesMax = 0 } = attributes.am;
    const max = { short: shortBytesMax, bcopy: bcopyBytesMax, zcopy: zcopyBytesMax }[layout];
    if (max === 0) refuse('does not support these active messages');
    if (sendMemory !== 'host' || recvMemory !== 'host') refuse('supports active messages only in host memory');
    if (bytes > max) refuse(`supports active messages of at most ${max} bytes`);
  } else if (operation === 'put' || operation === 'get') {
    const limits = attributes[operation];
    const [min, max] = layout === 'short' ? [1, limits.shortBytesMax] : [limits.zcopyBytesMin, limits.zcopyBytesMax];
    if (bytes < min || bytes > max) refuse(`supports ${min} to ${max} bytes`);
    if (layout === 'short' && sendMemory !== 'host') refuse('supports short data only from host memory');
    checkTypes(spec, iface, refuse);
  } else {
    const flag = bytes === 4 ? IfaceFlag.ATOMIC32 : IfaceFlag.ATOMIC64;
    if ((attributes.flags & flag) === 0) refuse('does not support atomic operations of this size');
    if (recvMemory !== 'host' || sendMemory !== 'host') refuse('supports atomic operations only on host memory');
  }
}

function checkTypes({ sendMemory, recvMemory }: TestSpec, iface: Iface, refuse: (reason: string) => never): void {
  const { localMemoryTypes, remoteMemoryTypes, requiredMemoryTypes } = iface.attributes;
  const [local, remote] = [memoryTypeOf(sendMemory), memoryTypeOf(recvMemory)];
  if (!hasMemoryType(localMemoryTypes, local)) refuse(`does not support local ${sendMemory} memory`);
  if (!hasMemoryType(remoteMemoryTypes, remote)) refuse(`does not support remote ${recvMemory} memory`);
  const isWork = hasMemoryType(requiredMemoryTypes, local) || hasMemoryType(requiredMemoryTypes, remote);
  if (requiredMemoryTypes !== 0 && !isWork)
    refuse(`does not support transfers between ${sendMemory} and ${recvMemory} memory`);
}
