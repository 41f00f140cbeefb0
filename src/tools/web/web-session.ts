/**
 * Session of the page: samples the node and queries the processes periodically while a browser shows the page, and runs its actions. The exchange of the
 * demonstration runs as a child process, at most one at a time, and the page shows its traffic like that of any program.
 */

import type { ChildProcess } from 'node:child_process';
import { inspectProcesses } from '../../assembly/inspect/inspect-client.ts';
import { readFault } from '../../assembly/node-server.ts';
import type { Program } from '../../assembly/program/program.ts';
import { namedCards } from '../../driver/card-names.ts';
import { LATENCY_BOUNDS_NS } from '../../ucs/stats/latency-histograms.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { invalidParam, isUcxError, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { spawnProgram } from '../base/command-line.ts';
import { pause } from '../base/text-table.ts';
import { type NodeSample, TopSampler } from '../model/sample.ts';
import { topModel } from '../model/top-model.ts';
import { PROCESSES_MAX, type WebExchange, type WebModel, webLatencies, webProcesses } from '../model/web-model.ts';
import { faultSentence } from '../node-access/fault.ts';
import type { WebNode } from './web-node.ts';
import { readPageFiles, type WebActions, WebServer } from './web-server.ts';

/** Timeout for the reply of a process. */
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
   * @throws UcxError ERR_NODE_UNREACHABLE if the node is closed
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
  if (inject === undefined) throw invalidParam('fault', 'can be injected into emulated cards only', 'real cards');
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
    throw invalidParam('fault', `is not possible now: ${error.message}`, fields['kind']);
  }
  return faultSentence(node, cards, card, fault);
}

/** Puts per pair: enough to watch the exchange of eight cards. */
const REPETITIONS = 64;
/** A line of a stage; see ProgressBar. */
const STAGE = /^stage (\d+) of (\d+): (.*)\n/gm;
/** Maximum number of characters of output; older ones are dropped. */
const OUTPUT_LENGTH_MAX = 4000;

/** The exchange. */
class ExchangeRun {
  readonly #driver: string | undefined;
  #child: ChildProcess | undefined;
  #shown: WebExchange = { state: 'idle', output: '' };

  /** @param driver value of UCX_GAUDI_DRIVER for the cards of the page; undefined for real ones */
  constructor(driver: string | undefined) {
    this.#driver = driver;
  }

  get shown(): WebExchange {
    return this.#shown;
  }

  /** Starts it. @throws UcxError BUSY while it runs */
  start(): void {
    if (this.#child !== undefined) throw statusError(Status.BUSY, 'the exchange is already running');
    const env = {
      ...process.env,
      UCX_STATS_LATENCY: 'y',
      ...(this.#driver !== undefined && { UCX_GAUDI_DRIVER: this.#driver }),
    };
    const args = ['demo', '--stages', '--repetitions', String(REPETITIONS)];
    const child = spawnProgram(process.argv[1]!, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    this.#child = child;
    this.#shown = { state: 'running', output: '' };
    const take = (bytes: Buffer): void => {
      this.#shown = withOutput(this.#shown, String(bytes));
    };
    child.stdout?.on('data', take);
    child.stderr?.on('data', take);
    const end = (isDone: boolean): void => {
      this.#child = undefined;
      this.#shown = { ...this.#shown, state: isDone ? 'done' : 'failed' };
    };
    child.once('error', (error) => {
      take(Buffer.from(error.message));
      end(false);
    });
    child.once('close', (code) => end(code === 0));
  }

  /** Ends it. */
  close(): void {
    this.#child?.kill('SIGTERM');
  }
}

/** Adds output. Lines of stages, which arrive complete, are not kept: the last one is the current stage. */
export function withOutput(shown: WebExchange, text: string): WebExchange {
  const [, done, total, stage] = [...text.matchAll(STAGE)].at(-1) ?? [];
  const output = `${shown.output}${text.replaceAll(STAGE, '')}`.slice(-OUTPUT_LENGTH_MAX);
  if (stage === undefined) return { ...shown, output };
  return { ...shown, output, stage: { text: stage, done: Number(done), total: Number(total) } };
}
