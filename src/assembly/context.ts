/**
 * Puts a context together: configuration, driver, transport components, ucp.
 */

import type { DriverNode } from '../driver/port.ts';
import { EventFd } from '../sys/index.ts';
import type { Context as ApiContext, Engine } from '../ucp/api/context.ts';
import { Context as UcpContext } from '../ucp/core/context.ts';
import type { Component } from '../uct/api/memory-domain.ts';
import { hostRange } from '../uct/base/host-range.ts';
import { GaudiResources } from '../uct/gaudi/base/gaudi-resources.ts';
import { gaudiCopyComponent } from '../uct/gaudi/copy/component.ts';
import { gaudiIpcComponent } from '../uct/gaudi/ipc/component.ts';
import { selfComponent } from '../uct/self/component.ts';
import { cmaComponent } from '../uct/shm/cma/component.ts';
import { posixComponent } from '../uct/shm/posix/component.ts';
import { tcpComponent } from '../uct/tcp/component.ts';
import { type Insight, openInsight } from './insight.ts';
import { openNode } from './open-node.ts';
import { packageVersion } from './package-version.ts';
import { type ProgramOptions, startProgram } from './program.ts';

/** What a context may be given. */
export interface ContextOptions extends ProgramOptions {
  /** A node to use instead of the one that UCX_GAUDI_DRIVER chooses; it stays the caller's to close. */
  readonly node?: DriverNode;
}

const NATIVE: Engine = { name: 'native', version: packageVersion(), reason: 'the default' };

/** The transport components of this library on a node. */
export function components(node: DriverNode, mappingTable: string | undefined): Component[] {
  const gaudi = new GaudiResources({ node, mappingTable });
  return [
    selfComponent(),
    posixComponent(),
    cmaComponent(),
    tcpComponent(),
    gaudiCopyComponent(gaudi),
    gaudiIpcComponent(gaudi),
  ];
}

/**
 * Opens a context: reads the configuration, chooses the driver, opens every mapped card.
 * @throws UcxError that says what is wrong: a bad configuration value or mapping table, a card that cannot be opened, no transport
 */
async function create(options: ContextOptions = {}): Promise<ApiContext> {
  return openNative(options, NATIVE);
}

/** Opens a context of the native engine: what {@link create} does unless another is asked for. For what looks behind the API. */
export async function openNative(options: ContextOptions = {}, engine: Engine = NATIVE): Promise<UcpContext> {
  const program = startProgram(options);
  const node = options.node ?? openNode(program);
  const release = options.node === undefined ? (): void => node.close() : (): void => {};
  let context: UcpContext | undefined;
  let insight: Insight | undefined;
  try {
    context = new UcpContext({
      ...program,
      engine,
      components: components(node, program.env['GAUDI_MAPPING_TABLE']),
      emulated: node.kind === 'emulator',
      newSignal: () => new EventFd(),
      hostRange,
      onClosing: () => insight?.close(),
      onClose: release,
    });
    insight = openInsight(program, context);
    return context;
  } catch (error) {
    if (context === undefined) release();
    else await context.close();
    throw error;
  }
}

/** A context: the start of every program. `await Context.create()` opens one. */
export type Context = ApiContext;
export const Context: { readonly create: typeof create } = { create };
