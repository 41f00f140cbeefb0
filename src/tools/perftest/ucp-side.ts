/**
 * One side of a UCP test: context, worker, memory to send from and to receive into, and the endpoint to the other side. What is done with them is
 * in the traffic classes.
 */

import { Context } from '../../assembly/context.ts';
import { openNode } from '../../assembly/open-node.ts';
import { type Program, startProgram } from '../../assembly/program.ts';
import type { DriverNode } from '../../driver/port.ts';
import type { Endpoint } from '../../ucp/core/endpoint.ts';
import type { Worker } from '../../ucp/core/worker.ts';
import type { IovPiece, LocalBuffer } from '../../ucp/mem/local-bytes.ts';
import type { LocalMemory, MemoryHandle } from '../../ucp/mem/memory-handle.ts';
import type { RemoteKey } from '../../ucp/mem/remote-key.ts';
import { invalidParam, isUcxError } from '../../ucs/error.ts';
import { hasMemoryType, MemoryType } from '../../ucs/memory-type.ts';
import { Status } from '../../ucs/status.ts';
import type { Part } from './content.ts';
import { type Datatype, type MemoryName, messageExtent, type TestSpec, unsupported } from './spec.ts';

/** Longest key or address in an introduction, in bytes. */
const INTRODUCTION_BYTES_MAX = 65_536;

/** What the other side must know of this one. */
export interface Introduction {
  readonly address: string;
  readonly key: string;
}

/** One side. */
export class UcpSide {
  readonly spec: TestSpec;
  readonly context: Context;
  readonly worker: Worker;
  readonly source: MemoryHandle;
  readonly target: MemoryHandle;
  readonly #node: DriverNode | undefined;
  #endpoint: Endpoint | undefined;
  #rkey: RemoteKey | undefined;

  private constructor(spec: TestSpec, context: Context, node: DriverNode | undefined) {
    this.spec = spec;
    this.context = context;
    this.#node = node;
    const bytes = messageExtent(spec);
    this.source = mapMemory(context, spec.sendMemory, bytes);
    this.target = mapMemory(context, spec.recvMemory, bytes);
    this.worker = context.worker();
  }

  /**
   * Opens a side.
   * @throws UcxError of the context; ERR_UNSUPPORTED where device memory is asked for and no card can be had
   */
  static async open(spec: TestSpec): Promise<UcpSide> {
    const needsCard = spec.sendMemory === 'gaudi' || spec.recvMemory === 'gaudi';
    const { context, node } = needsCard ? await openWithCard() : { context: await Context.create(), node: undefined };
    try {
      return new UcpSide(spec, context, node);
    } catch (error) {
      await context.close();
      node?.close();
      throw error;
    }
  }

  /** True when cards take part and are emulated. */
  get emulated(): boolean {
    const { sendMemory, recvMemory } = this.spec;
    return this.context.emulated && (sendMemory === 'gaudi' || recvMemory === 'gaudi');
  }

  introduce(): Introduction {
    return { address: hexOf(this.worker.address()), key: hexOf(this.context.packRkey(this.target)) };
  }

  /**
   * Connects to the other side, or to this very one.
   * @throws UcxError ERR_INVALID_PARAM, ERR_ADDRESS_MALFORMED, ERR_RKEY_MALFORMED, ERR_UNREACHABLE
   */
  connect(peer: Readonly<Record<string, unknown>>): void {
    const errorHandling = this.spec.errorHandling ? 'peer' : 'none';
    this.#endpoint = this.worker.endpoint(bytesOf('address of the peer', peer['address']), { errorHandling });
    this.#rkey = this.#endpoint.unpackRkey(bytesOf('key of the peer', peer['key']));
  }

  get endpoint(): Endpoint {
    if (this.#endpoint === undefined) throw invalidParam('side', 'must be connected', undefined);
    return this.#endpoint;
  }

  /** Key of the memory that the other side receives into. */
  get rkey(): RemoteKey {
    if (this.#rkey === undefined) throw invalidParam('side', 'must be connected', undefined);
    return this.#rkey;
  }

  /** Where the parts of a message lie. */
  parts(type: Datatype): Part[] {
    const { sizes, stride } = this.spec;
    const total = sizes.reduce((sum, size) => sum + size, 0);
    if (type === 'contig') return [{ offset: 0, byteLength: total }];
    let next = 0;
    return sizes.map((byteLength, index) => {
      const offset = stride === 0 ? next : index * stride;
      next += byteLength;
      return { offset, byteLength };
    });
  }

  /** Memory as programs pass it: bytes, unless they are of a card or the test asks for mapped memory (-z). */
  local(memory: MemoryHandle): LocalMemory {
    return this.spec.mapped ? memory : (memory.bytes ?? memory);
  }

  /** Memory as the operations of messages take it. */
  buffer(handle: MemoryHandle, type: Datatype): LocalBuffer {
    const memory = this.local(handle);
    if (type === 'contig') return memory;
    return this.parts(type).map((part): IovPiece => ({ memory, ...part }));
  }

  /** Ends everything at once: what is on its way is cancelled. */
  async close(): Promise<void> {
    this.#rkey?.release();
    await this.context.close();
    this.#node?.close();
  }
}

function mapMemory(context: Context, name: MemoryName, allocate: number): MemoryHandle {
  return context.memMap({ allocate, memoryType: name === 'gaudi' ? MemoryType.GAUDI : MemoryType.HOST });
}

/**
 * A context with a card: with those of GAUDI_MAPPING_TABLE, or with the first card that nobody has, so that the two sides of a test can share a
 * node.
 */
async function openWithCard(): Promise<{ readonly context: Context; readonly node: DriverNode | undefined }> {
  const program = startProgram();
  if (program.env['GAUDI_MAPPING_TABLE'] !== undefined) return { context: await Context.create(), node: undefined };
  const node = openNode(program);
  const reasons: string[] = [];
  try {
    for (const { busId } of node.cards()) {
      const context = await openCard(program, node, busId, reasons);
      if (context !== undefined) return { context, node };
    }
  } catch (error) {
    node.close();
    throw error;
  }
  node.close();
  throw unsupported('gaudi memory', reasons.length > 0 ? reasons.join('; ') : 'there is no card');
}

/** A context with one card; undefined, and a reason more, where it cannot be had. */
async function openCard(
  program: Program,
  node: DriverNode,
  busId: string,
  reasons: string[],
): Promise<Context | undefined> {
  const table = JSON.stringify([{ index: 0, bus_id: busId }]);
  try {
    const context = await Context.create({ node, env: { ...program.env, GAUDI_MAPPING_TABLE: table } });
    if (context.mds.some(({ md }) => hasMemoryType(md.attributes.allocateMemoryTypes, MemoryType.GAUDI))) {
      return context;
    }
    const refused = context.resources.rejections.filter(({ name }) => name.startsWith('gaudi'));
    reasons.push(...refused.map(({ name, reason }) => `${busId}: ${name}: ${reason}`));
    await context.close();
  } catch (error) {
    if (!isUcxError(error) || error.status !== Status.BUSY) throw error;
    reasons.push(error.message);
  }
  return undefined;
}

function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}

function bytesOf(name: string, text: unknown): Uint8Array {
  const isHex = typeof text === 'string' && /^([\da-f]{2})*$/.test(text) && text.length <= 2 * INTRODUCTION_BYTES_MAX;
  if (!isHex) throw invalidParam(name, 'must be bytes as hexadecimal text', typeof text);
  return new Uint8Array(Buffer.from(text, 'hex'));
}
