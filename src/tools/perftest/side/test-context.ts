/**
 * The context of a test with its memory: for device memory with the first free card, so that the two sides of a test can share a node. UCX_TLS selects the
 * transports.
 */

import type { MemoryHandle } from '../../../api/contract/memory.ts';
import { Context, type ContextOptions } from '../../../assembly/context.ts';
import {
  type AllowedCard,
  allowedCards,
  BUSY_ADVICE,
  cardLines,
  cardSettings,
  openNode,
  removedCards,
} from '../../../assembly/open-node.ts';
import { startProgram } from '../../../assembly/program/program.ts';
import type { DriverNode } from '../../../driver/port.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import { invalidParam, isUcxError } from '../../../ucs/type/error.ts';
import { isAtomic, type MemoryName, messageExtent, type TestSpec, unsupported } from '../spec.ts';

/** Longest key or address in a hello, in bytes. */
const HELLO_BYTES_MAX = 65_536;

/** Addresses and keys of one side for the other, as strings. */
export interface Hello {
  readonly address: string;
  readonly key: string;
}

/** A context, memory to send from and memory to receive into. */
export class TestContext {
  readonly context: Context;
  readonly source: MemoryHandle;
  readonly target: MemoryHandle;
  readonly #node: DriverNode | undefined;

  private constructor(spec: TestSpec, context: Context, node: DriverNode | undefined) {
    this.context = context;
    this.#node = node;
    const bytes = messageExtent(spec);
    this.source = mapMemory(context, spec.sendMemory, bytes);
    this.target = mapMemory(context, spec.recvMemory, bytes);
  }

  /**
   * Opens a context.
   * @throws UcxError of the context; ERR_UNSUPPORTED if the test needs a card and none is available
   */
  static async open(spec: TestSpec, needsCard: boolean): Promise<TestContext> {
    const { context, node } = needsCard
      ? await openWithCard(spec.device)
      : { context: await Context.create(featuresOf(spec)), node: undefined };
    try {
      return new TestContext(spec, context, node);
    } catch (error) {
      await context.close();
      node?.close();
      throw error;
    }
  }

  /** Closes at once: operations in flight are cancelled. */
  async close(): Promise<void> {
    await this.context.close();
    this.#node?.close();
  }
}

/** The memory type for a name of the command line. */
export function memoryTypeOf(name: MemoryName): MemoryType {
  return name === 'gaudi' ? MemoryType.GAUDI : MemoryType.HOST;
}

/** Encodes bytes for a hello. */
export function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}

/** Decodes bytes of a hello. @throws UcxError ERR_INVALID_PARAM if the value is invalid */
export function bytesOf(name: string, text: unknown): Uint8Array {
  const isHex = typeof text === 'string' && /^([\da-f]{2})*$/.test(text) && text.length <= 2 * HELLO_BYTES_MAX;
  if (!isHex) throw invalidParam(name, 'must be a hexadecimal string', typeof text);
  return new Uint8Array(Buffer.from(text, 'hex'));
}

/** The feature for the test with host memory, as in ucx_perftest: UCX creates lanes by features. */
function featuresOf({ kind, sizes }: TestSpec): Pick<ContextOptions, 'features'> {
  const { api, operation } = kind;
  if (api === 'UCT') return {};
  if (isAtomic(operation)) return { features: [sizes[0] === 4 ? 'amo32' : 'amo64'] };
  if (operation === 'put' || operation === 'get') return { features: ['rma'] };
  return { features: [operation === 'tag_sync' ? 'tag' : operation] };
}

function mapMemory(context: Context, name: MemoryName, allocate: number): MemoryHandle {
  return context.memMap({ allocate, memoryType: memoryTypeOf(name) });
}

/** A context with one card: the first allowed card that can be opened, beginning with `preferred`. */
async function openWithCard(
  preferred: string,
): Promise<{ readonly context: Context; readonly node: DriverNode | undefined }> {
  const program = startProgram();
  const node = openNode(program);
  const refused: RefusedCard[] = [];
  try {
    for (const card of removedCards(program, node))
      refused.push({ ...card, reason: card.absence ?? 'removed', isBusy: false });
    const isPreferred = ({ name }: AllowedCard): number => (name === preferred ? 0 : 1);
    for (const card of allowedCards(program, node).sort((one, other) => isPreferred(one) - isPreferred(other))) {
      const context = await openCard(node, card, refused);
      if (context !== undefined) return { context, node };
    }
  } catch (error) {
    node.close();
    throw error;
  }
  node.close();
  const lines = cardLines(refused, ({ reason }) => reason);
  if (refused.some(({ isBusy }) => isBusy)) lines.push(BUSY_ADVICE);
  throw unsupported('gaudi memory', lines.length > 0 ? lines.join('; ') : NO_CARD);
}

const NO_CARD =
  'no card is available: gaudi-ucx info -s lists the cards, gaudi-ucx doctor the settings that exclude them';

/** Errors of opening a card that another process has opened, or that does not work. */
const CARD_CODES: ReadonlySet<string> = new Set([
  'ERR_GAUDI_DEVICE_BUSY',
  'ERR_GAUDI_PERMISSION_DENIED',
  'ERR_GAUDI_DEVICE_NOT_FOUND',
]);

/** A card that cannot be opened. */
interface RefusedCard {
  readonly index: number | undefined;
  readonly minor: number | undefined;
  readonly busId: string;
  readonly reason: string;
  readonly isBusy: boolean;
}

/** A context with one card; undefined, with the card added to `refused`, if it cannot be opened. */
async function openCard(node: DriverNode, card: AllowedCard, refused: RefusedCard[]): Promise<Context | undefined> {
  const {
    index,
    card: { minor, busId },
  } = card;
  try {
    const context = await Context.create({ node, env: { ...process.env, ...cardSettings(card) } });
    const { memoryTypes, unavailable } = context.query();
    if (memoryTypes.includes(MemoryType.GAUDI)) return context;
    // Both transports of the card have the same reason.
    const { name, reason = 'not used' } = unavailable.find((each) => each.name.startsWith('gaudi')) ?? {
      name: 'gaudi',
    };
    refused.push({ index, minor, busId, reason: `${name}: ${reason}`, isBusy: false });
    await context.close();
  } catch (error) {
    // Another process has opened the card, or it does not work; errors that do not concern the card are thrown.
    if (!isUcxError(error) || !CARD_CODES.has(error.code)) throw error;
    const reason = String(error.details['reason'] ?? error.message);
    refused.push({ index, minor, busId, reason, isBusy: error.code === 'ERR_GAUDI_DEVICE_BUSY' });
  }
  return undefined;
}
