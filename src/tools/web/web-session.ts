/** Session of the page: samples the node and queries the processes periodically while a browser shows the page, and runs its actions. */

import { inspectProcesses } from '../../assembly/inspect/inspect-client.ts';
import { readFault } from '../../assembly/node-server.ts';
import type { Program } from '../../assembly/program/program.ts';
import { namedCards } from '../../driver/card-names.ts';
import { LATENCY_BOUNDS_NS } from '../../ucs/stats/latency-histograms.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { invalidParam, isUcxError } from '../../ucs/type/error.ts';
import { pause } from '../base/pause.ts';
import { type NodeSample, TopSampler } from '../model/sample.ts';
import { topModel } from '../model/top-model.ts';
import { PROCESSES_MAX, type WebModel, webLatencies, webProcesses } from '../model/web-model.ts';
import { faultSentence } from '../node/fault.ts';
import { ExchangeRun } from './exchange-run.ts';
import { readPageFiles } from './page-files.ts';
import type { WebNode } from './web-node.ts';
import { type WebActions, WebServer } from './web-server.ts';

/** Time that a process may take to answer. */
const INSPECT_TIMEOUT_NS = 500e6;
const TOKEN_BYTES = 18;

/** The session. */
export class WebSession {
  readonly server: WebServer;
  readonly #program: Program;
  readonly #web: WebNode;
  readonly #exchange: ExchangeRun;
  readonly #sampler: TopSampler;
  #last: NodeSample | undefined;

  private constructor(program: Program, web: WebNode, exchange: ExchangeRun, server: WebServer) {
    this.#program = program;
    this.#web = web;
    this.#exchange = exchange;
    this.server = server;
    this.#sampler = new TopSampler(web.node, () => program.clock.nowNs());
  }

  /** Listens. @throws UcxError ERR_WEB_PAGE; Error of listening */
  static async open(program: Program, web: WebNode, port: number): Promise<WebSession> {
    const exchange = new ExchangeRun(web.driver);
    const token = Buffer.from(systemRandomBytes(TOKEN_BYTES)).toString('base64url');
    const actions: WebActions = {
      injectFault: (request) => injectFault(web, request),
      startExchange: () => {
        exchange.start();
        return 'the exchange has started';
      },
    };
    const files = readPageFiles();
    return new WebSession(
      program,
      web,
      exchange,
      await WebServer.listen({ files, token, clock: program.clock, actions }, port),
    );
  }

  /**
   * Shows models until the signal fires, or the owner of the node closes it.
   * @throws UcxError ERR_NODE_UNREACHABLE when the node is gone
   */
  async run(intervalNs: number, signal: AbortSignal): Promise<void> {
    try {
      do {
        if (this.server.viewers > 0) this.server.show(await this.model());
        // The next sample has no predecessor, so it has no rates.
        else this.#last = undefined;
      } while (await pause(this.#program.clock, intervalNs, signal));
    } catch (error) {
      if (!isUcxError(error) || error.code !== 'ERR_CLOSED') throw error;
    }
  }

  /** The model now. */
  async model(): Promise<WebModel> {
    const { clock, env } = this.#program;
    const sample = this.#sampler.sample();
    const top = topModel(this.#last, sample);
    this.#last = sample;
    const answers = await inspectProcesses({
      runtimeDirectory: env['XDG_RUNTIME_DIR'],
      clock,
      timeoutNs: INSPECT_TIMEOUT_NS,
    });
    const processes = webProcesses(answers);
    return {
      top,
      processes: processes.slice(0, PROCESSES_MAX),
      processCount: processes.length,
      latencies: webLatencies(answers, LATENCY_BOUNDS_NS),
      exchange: this.#exchange.shown,
      canInject: this.#web.inject !== undefined,
      driver: this.#web.driver,
    };
  }

  close(): void {
    this.server.close();
    this.#exchange.close();
    this.#sampler.close();
  }
}

/** Injects the fault of a request. @throws UcxError ERR_INVALID_PARAM */
function injectFault({ inject, node }: WebNode, request: unknown): string {
  if (inject === undefined) throw invalidParam('fault', 'must be of an emulated node', 'real cards');
  if (typeof request !== 'object' || request === null) throw invalidParam('request', 'must be an object', request);
  const { card, ...fields }: Readonly<Record<string, unknown>> = { ...request };
  const cards = namedCards(node);
  const known = cards.map(({ minor }) => minor);
  if (typeof card !== 'number' || !known.includes(card)) {
    throw invalidParam('card', `must be one of ${known.join(', ')}`, card);
  }
  const fault = readFault(fields);
  try {
    inject(card, fault);
  } catch (error) {
    if (isUcxError(error) || !(error instanceof Error)) throw error;
    throw invalidParam('fault', `must be possible now: ${error.message}`, fields['kind']);
  }
  return faultSentence(node, cards, card, fault);
}
