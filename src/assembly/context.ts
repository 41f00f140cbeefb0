/** Creates a context from its dependencies: configuration, driver, transport components, ucp. */

import { type Context as ApiContext, checkFeatures, type Feature } from '../api/contract/context.ts';
import type { Engine } from '../api/contract/explanation.ts';
import type { CardNode } from '../api/contract/snapshot.ts';
import type { DriverNode } from '../driver/port.ts';
import type { Device } from '../hlthunk/index.ts';
import type { Libucp } from '../libucx/c/library.ts';
import { rejectUnignorable } from '../libucx/c/ucx-variables.ts';
import type { Context as LibucxContext } from '../libucx/core/context.ts';
import { EventFd, releaseAbandonedMappings, Udmabuf } from '../sys/index.ts';
import { Context as NativeContext } from '../ucp/core/context.ts';
import { UCP_CONFIG_TABLE } from '../ucp/resources/config.ts';
import type { OpenMd } from '../ucp/resources/resources.ts';
import { checkOptions } from '../ucs/type/check-options.ts';
import { invalidParam, isUcxError } from '../ucs/type/error.ts';
import type { Component } from '../uct/api/memory-domain.ts';
import { ContextDmabufs } from '../uct/base/host/dmabufs.ts';
import { hostRange } from '../uct/base/host/memory.ts';
import { cardChoiceOf } from '../uct/gaudi/base/cards.ts';
import { cardAt } from '../uct/gaudi/base/foreign-memory.ts';
import { checkDevices, GaudiResources } from '../uct/gaudi/base/resources.ts';
import { gaudiCopyComponent } from '../uct/gaudi/copy/md.ts';
import { gaudiIpcComponent } from '../uct/gaudi/ipc/md.ts';
import { RC_NAME } from '../uct/ib/base/config.ts';
import { ibComponent } from '../uct/ib/md.ts';
import { selfComponent } from '../uct/self/md.ts';
import { cmaComponent } from '../uct/shm/cma/md.ts';
import { posixComponent } from '../uct/shm/posix/md.ts';
import { TCP_CM_CONFIG_TABLE } from '../uct/tcp/config.ts';
import { tcpComponent } from '../uct/tcp/md.ts';
import type { VerbsPort } from '../verbs/port.ts';
import { chooseEngine, engineInstead } from './engine.ts';
import { inspectContext } from './inspect/context-inspection.ts';
import type { ListedContext } from './inspect/process-snapshot.ts';
import { openNode, openVerbs } from './open-node.ts';
import type { EngineChoice } from './program/config.ts';
import {
  Instrumentation,
  PROGRAM_OPTIONS,
  type Program,
  type ProgramOptions,
  readProgram,
  warnOfUnused,
  withDriver,
} from './program/program.ts';
import { distancesOf } from './topology.ts';

/** Names of the components of this library. */
const OWN_COMPONENTS: readonly string[] = ['self', 'posix', 'cma', 'tcp', 'ib', 'gaudi_copy', 'gaudi_ipc'];
const CARD_TRANSPORTS: readonly string[] = ['gaudi', 'gaudi_copy', 'gaudi_cpy', 'gaudi_gdr', 'gaudi_ipc'];

/** Options of a context. */
export interface ContextOptions extends ProgramOptions {
  /** The engine that runs the operations; overrides UCX_ENGINE. */
  readonly engine?: EngineChoice | undefined;
  /**
   * Features that the program uses; operations of other features are rejected (ERR_FEATURE_MISSING). Default: all. Over libucp,
   * both ends need the same features, else connecting fails with ERR_UNREACHABLE: for a peer that requests fewer, list the features of that peer. The native
   * engine neither omits nor rejects anything.
   */
  readonly features?: readonly Feature[] | undefined;
  /** Source of the cards; overrides UCX_GAUDI_DRIVER, with the same values. Not together with `node` and `devices`. */
  readonly driver?: 'auto' | 'kernel' | 'emulator' | `emulator:${string}` | undefined;
  /** A node to use instead of the one chosen by UCX_GAUDI_DRIVER; the caller closes it. */
  readonly node?: DriverNode | undefined;
  /**
   * Open devices of `gaudi-ucx/hlthunk` to use instead of opening cards: their indices are their positions in the list, regardless of GAUDI_MAPPING_TABLE.
   * The caller closes them after the context; closing the context waits for its transfers on them.
   */
  readonly devices?: readonly Device[] | undefined;
  /**
   * Additional components of the program: memory experts and transports. Detection, registration, selection and staging use them like those of this library;
   * UCX_TLS names their transports. Native engine only. See docs/guide/extending.md.
   */
  readonly components?: readonly Component[] | undefined;
}

const CONTEXT_OPTIONS = [...PROGRAM_OPTIONS, 'engine', 'features', 'driver', 'node', 'devices', 'components'] as const;

/** The transport components of this library on a node. @param withAbsent includes the component of RDMA devices even if there are none */
export function components(
  node: DriverNode,
  program: Pick<Program, 'env' | 'config' | 'log'>,
  withAbsent = false,
): Component[] {
  const verbs = openVerbs(node, program);
  const found = componentsOn(new GaudiResources({ node, ...cardChoiceOf(program.env) }), verbs);
  return verbs === undefined && withAbsent ? [...found, ibComponent(undefined)] : found;
}

/** @param verbs RDMA devices; undefined for none @param isBesideLibucp excludes the transports that libucp replaces */
function componentsOn(gaudi: GaudiResources, verbs: VerbsPort | undefined, isBesideLibucp = false): Component[] {
  return [
    selfComponent(),
    ...(isBesideLibucp ? [] : [posixComponent(), cmaComponent(), tcpComponent()]),
    ...(verbs === undefined ? [] : [ibComponent(verbs)]),
    gaudiCopyComponent(gaudi),
    gaudiIpcComponent(gaudi),
  ];
}

/** See {@link Context}. */
async function create(options: ContextOptions = {}): Promise<Context> {
  checkOptions(options, 'options', CONTEXT_OPTIONS);
  checkDriver(options);
  const features = checkFeatures(options.features);
  const program = readProgram(withDriver(options, options.driver));
  releaseAbandonedMappings();
  const added = checkComponents(options.components);
  const { engine, libucp } = chooseEngine(program, options.engine, added.length > 0);
  if (libucp === undefined) {
    rejectUnignorable(program.config, false);
    warnOfUnused(program);
    return await openNative(program, options, engine);
  }
  try {
    return await openLibucx(program, { ...options, features }, engine, libucp);
  } catch (error) {
    const instead = isUcxError(error) ? engineInstead(program, options.engine, error) : undefined;
    if (instead === undefined) throw error;
    rejectUnignorable(program.config, false);
    warnOfUnused(program);
    return await openNative(program, options, instead);
  }
}

function checkDriver({ driver, node, devices }: ContextOptions): void {
  if (driver !== undefined && (node !== undefined || devices !== undefined)) {
    throw invalidParam('driver', 'must not be combined with node or devices, which have a driver', driver);
  }
}

/** Opens the instrumentation of a context, and makes the context visible to other processes. */
function observeContext(program: Program, context: ListedContext): Instrumentation {
  const instrumentation = new Instrumentation(program, context);
  try {
    instrumentation.hide = inspectContext(program, context);
    return instrumentation;
  } catch (error) {
    instrumentation.close();
    throw error;
  }
}

/** Opens a context of the native engine. @param isBesideLibucp for an internal context, used with libucp */
async function openNative(
  program: Program,
  options: Pick<ContextOptions, 'node' | 'devices' | 'components'>,
  engine: Engine,
  isBesideLibucp = false,
): Promise<NativeContext<Device>> {
  const devices = checkDevices(options.devices, options.node);
  const given = options.node === undefined ? devices?.[0]?.node : options.node;
  const node = given === undefined ? openNode(program) : given;
  const release = given === undefined ? (): void => node.close() : (): void => {};
  let context: NativeContext<Device> | undefined;
  let instrumentation: Instrumentation | undefined;
  try {
    const gaudi = new GaudiResources({ node, ...cardChoiceOf(program.env), devices });
    // With libucp, the RDMA devices of the host belong to libucp.
    const verbs = isBesideLibucp ? node.verbs : openVerbs(node, program);
    context = new NativeContext({
      ...program,
      engine,
      components: [...componentsOn(gaudi, verbs, isBesideLibucp), ...(options.components ?? [])],
      distanceOf: distancesOf(gaudi, { node, config: program.config }),
      deviceOf: (index) => deviceOf(gaudi, index),
      emulated: node.emulated,
      cardNode: cardNodeOf(node),
      newSignal: () => new EventFd(),
      hostRange,
      hostDmabufs: new ContextDmabufs(new Udmabuf(), program.log.child('dmabuf')),
      onClosing: () => instrumentation?.close(),
      onClose: release,
    });
    if (!isBesideLibucp) rejectUnignorable(program.config, context.mds.some(isRdma));
    instrumentation = isBesideLibucp ? new Instrumentation(program, context) : observeContext(program, context);
    return context;
  } catch (error) {
    if (context === undefined) release();
    else await context.close();
    throw error;
  }
}

/** The node of the cards as a context reports it. */
function cardNodeOf({ kind, serverPid: pid, socketPath: socket }: DriverNode): CardNode {
  if (kind === 'kernel') return { kind, pid: undefined, socket: undefined };
  return { kind: pid === undefined ? 'private' : 'server', pid, socket };
}

function isRdma({ resources }: OpenMd): boolean {
  return resources.some(({ transport }) => transport === RC_NAME);
}

/** Opens a context over libucp, with an internal native one for the cards of this node. */
async function openLibucx(
  program: Program,
  options: Pick<ContextOptions, 'node' | 'devices'> & { readonly features: readonly Feature[] },
  engine: Engine,
  libucp: Libucp,
): Promise<Context> {
  const { features } = options;
  const { PROGRESS_SPIN, REQUESTS_MAX, RNDV_FRAG_SIZE, RNDV_FRAG_ALLOC_COUNT } = program.config.get(UCP_CONFIG_TABLE);
  const source = program.source.clone();
  source
    .modify('TLS', nodeTls(source.get('TLS')))
    .modify('STATS_DEST', '')
    .modify('RNDV_SCHEME', 'auto');
  for (const devices of ['NET_DEVICES', 'SHM_DEVICES', 'SELF_DEVICES']) source.modify(devices, 'all');
  // Imported on demand: most programs do not use it, and V8 parses everything that is imported.
  const { Context: LibucxContext } = await import('../libucx/core/context.ts');
  const node = await openNative({ ...program, config: source.values, source }, options, engine, true);
  let context: LibucxContext<Device> | undefined;
  let instrumentation: Instrumentation | undefined;
  try {
    context = new LibucxContext({
      libucp,
      engine,
      features,
      config: program.config,
      log: program.log,
      clock: program.clock,
      progressSpinNs: PROGRESS_SPIN,
      requestsMax: REQUESTS_MAX,
      answerTimeoutNs: program.config.get(TCP_CM_CONFIG_TABLE).ANSWER_TIMEOUT,
      fragmentBytes: RNDV_FRAG_SIZE,
      fragmentCount: RNDV_FRAG_ALLOC_COUNT,
      native: node,
      onClosing: () => instrumentation?.close(),
    });
    await context.probeAccess();
    instrumentation = observeContext(program, context);
    return context;
  } catch (error) {
    await (context ?? node).close();
    throw error;
  }
}

/**
 * Checks the components that a program adds.
 * @throws UcxError ERR_INVALID_PARAM unless it is a list of components with unique names
 */
function checkComponents(components: readonly Component[] = []): readonly Component[] {
  if (!Array.isArray(components)) throw invalidParam('components', 'must be a list of components', components);
  const names = new Set(OWN_COMPONENTS);
  for (const [index, component] of components.entries()) {
    const name = `components[${index}]`;
    const isComponent = typeof component?.openMd === 'function' && Array.isArray(component.transports);
    if (!isComponent) throw invalidParam(name, 'must be a component: a name, transports and openMd', component);
    if (typeof component.name !== 'string' || component.name === '') {
      throw invalidParam(`${name}.name`, 'must be a non-empty string', component.name);
    }
    if (names.has(component.name)) throw invalidParam(`${name}.name`, 'must be unique', component.name);
    names.add(component.name);
  }
  return [...components];
}

function deviceOf({ cards }: GaudiResources, index: number): Device {
  if (!Number.isInteger(index) || index < 0) throw invalidParam('index', 'must be the index of a card', index);
  return cardAt(cards, index).device;
}

/** A context, which every program creates first: `await Context.create()`. */
export interface Context extends ApiContext<Device> {}
export const Context: {
  /**
   * Opens a context: reads the configuration, selects engine and driver, and opens every card that it may use.
   * @throws UcxError with the cause: an invalid configuration value or mapping table, a card that cannot be opened, no transport, an engine that is not
   * installed
   * @example
   * ```ts
   * const context = await Context.create(); // or with options: { driver: 'emulator', config: { TLS: 'self,tcp' } }
   * const worker = context.worker();
   * await context.close();
   * ```
   */
  readonly create: typeof create;
} = { create };

/** UCX_TLS of the internal native context, derived from UCX_TLS of the program: only the transports of cards. */
function nodeTls(text: string): string {
  const isNegated = text.startsWith('^');
  const names = text
    .slice(isNegated ? 1 : 0)
    .split(',')
    .map((name) => name.trim());
  if (names.includes('all')) return 'all';
  const ofCards = names.filter((name) => CARD_TRANSPORTS.includes(name));
  if (!isNegated) return ['self', ...ofCards].join(',');
  return ofCards.length === 0 ? 'all' : `^${ofCards.join(',')}`;
}
