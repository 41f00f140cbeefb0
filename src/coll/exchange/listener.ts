/**
 * Exchange over TCP: rank 0 listens, the other ranks connect to the address that launchers set (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). The exchange is
 * not encrypted, and a program that connects first can take the place of a rank: use it on loopback and in trusted networks. Each frame is a length and that
 * many bytes; lengths and numbers of frames are bounded.
 */

import { connect, createServer, type Server, type Socket } from 'node:net';
import { type Clock, systemClock, type Timer } from '../../ucs/sys/clock.ts';
import { checkOptions } from '../../ucs/type/check-options.ts';
import { invalidParam, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { checkRank, checkTimeoutMs, type Exchange } from './exchange.ts';

/** Options of {@link listenerExchange}. */
export interface ListenerExchangeOptions {
  /** This rank. */
  readonly rank: number;
  /** Number of ranks. */
  readonly size: number;
  /** Address or name at which rank 0 listens and the others connect. */
  readonly host: string;
  /** Port, 1 to 65535. */
  readonly port: number;
  /** Time limit in milliseconds for all ranks to connect. Default 60000. */
  readonly timeoutMs?: number | undefined;
}

/** Rank, size and exchange, as options of a team. */
export interface LaunchedRank {
  /** This rank. */
  readonly rank: number;
  /** Number of ranks. */
  readonly size: number;
  /** The exchange over the listener. */
  readonly exchange: Exchange;
}

/** First bytes that a rank sends; rank 0 does not reply to connections without them. */
const HELLO = new TextEncoder().encode('gaudi-ucx/coll 1');
const TIMEOUT_MS = 60_000;
/** Time between attempts to connect, while rank 0 does not listen yet. */
const RETRY_NS = 20e6;

/**
 * Makes the exchange of one rank.
 * @throws UcxError ERR_INVALID_PARAM; the promise of the exchange rejects with ERR_TIMED_OUT if ranks are missing, and with the socket's error if rank 0
 * cannot listen
 */
export function listenerExchange(options: ListenerExchangeOptions): Exchange {
  checkOptions(options, 'options', ['rank', 'size', 'host', 'port', 'timeoutMs']);
  const { rank, size, host, port, timeoutMs = TIMEOUT_MS } = options;
  checkRank(rank, size);
  if (typeof host !== 'string' || host === '') throw invalidParam('host', 'must be an address or a name', host);
  if (!Number.isInteger(port) || port < 1 || port > 65_535) {
    throw invalidParam('port', 'must be an integer from 1 to 65535', port);
  }
  checkTimeoutMs(timeoutMs, 1);
  return (bytes) => (rank === 0 ? gather(options, bytes, systemClock) : join(options, bytes, systemClock));
}

/**
 * Rank, size and exchange from the variables that launchers set: RANK, WORLD_SIZE, MASTER_ADDR (default 127.0.0.1), MASTER_PORT.
 * @param env such as `process.env`
 * @throws UcxError ERR_INVALID_PARAM, which names the variable
 */
export function launchedRank(env: Readonly<Record<string, string | undefined>>): LaunchedRank {
  checkOptions(env, 'env');
  const numberIn = (name: string): number => {
    const text = env[name];
    if (typeof text !== 'string' || !/^\d{1,9}$/.test(text)) {
      throw invalidParam(name, 'must be set by the launcher, to a number', text);
    }
    return Number(text);
  };
  const [rank, size, port] = [numberIn('RANK'), numberIn('WORLD_SIZE'), numberIn('MASTER_PORT')];
  if (rank >= size) throw invalidParam('RANK', `must be below WORLD_SIZE, which is ${size}`, rank);
  const host = env['MASTER_ADDR'] ?? '127.0.0.1';
  return { rank, size, exchange: listenerExchange({ rank, size, host, port }) };
}

/** Runs on rank 0: collects the bytes of all ranks and sends all of them to each. */
function gather(options: ListenerExchangeOptions, own: Uint8Array, clock: Clock): Promise<readonly Uint8Array[]> {
  const { size, host, port } = options;
  return new Promise((resolve, reject) => {
    const given: { readonly socket: Socket; readonly bytes: Uint8Array }[] = [];
    const sockets = new Set<Socket>();
    let isOver = false;
    const timer = deadline(options, clock, () => end(missing(given.length + 1, size)));
    const end = (error?: Error): void => {
      if (isOver) return;
      isOver = true;
      timer.cancel();
      server.close();
      const all = [own, ...given.map(({ bytes }) => bytes)];
      for (const { socket } of given) {
        if (error === undefined) for (const bytes of all) sendFrame(socket, bytes);
        // A stopped rank does not close its end of the connection; this program may exit meanwhile.
        socket.end(() => socket.unref());
        sockets.delete(socket);
      }
      for (const socket of sockets) socket.destroy();
      if (error === undefined) resolve(all);
      else reject(error);
    };
    const server: Server = createServer((socket) => {
      sockets.add(socket);
      // At most twice the number of ranks, so that connections of other programs cannot lock out the ranks for long.
      const [oldest] = sockets;
      if (sockets.size > 2 * size && oldest !== undefined) oldest.destroy();
      socket.on('close', () => sockets.delete(socket));
      readFrames(
        socket,
        2,
        (frames) => {
          const [hello, bytes] = [frames[0]!, frames[1]!];
          if (Buffer.compare(hello, HELLO) !== 0 || given.length >= size - 1) socket.destroy();
          else given.push({ socket, bytes });
          if (given.length === size - 1) end();
        },
        () => socket.destroy(),
      );
    });
    server.on('error', (error) => end(error));
    if (size === 1) end();
    else server.listen(port, host);
  });
}

/** Runs on the other ranks: connects, with retries until rank 0 listens, and receives the bytes of all. */
function join(options: ListenerExchangeOptions, own: Uint8Array, clock: Clock): Promise<readonly Uint8Array[]> {
  const { size, host, port } = options;
  return new Promise((resolve, reject) => {
    let isOver = false;
    let socket: Socket | undefined;
    let retry: Timer | undefined;
    const end = (run: () => void): void => {
      if (isOver) return;
      isOver = true;
      timer.cancel();
      retry?.cancel();
      socket?.destroy();
      run();
    };
    let failure: string | undefined;
    const timer = deadline(options, clock, () => end(() => reject(missing(undefined, size, failure))));
    const attempt = (): void => {
      if (isOver) return;
      const current = connect({ host, port });
      socket = current;
      current.on('connect', () => {
        sendFrame(current, HELLO);
        sendFrame(current, own);
      });
      readFrames(
        current,
        size,
        (all) => end(() => resolve(all)),
        (reason) => {
          // Retries also a name that does not resolve yet: it may be published after the ranks have started.
          failure = reason;
          current.destroy();
          retry = clock.setTimer(RETRY_NS, attempt);
          retry.ref();
        },
      );
    };
    attempt();
  });
}

function deadline({ timeoutMs = TIMEOUT_MS }: ListenerExchangeOptions, clock: Clock, run: () => void): Timer {
  const timer = clock.setTimer(timeoutMs * 1e6, run);
  timer.ref();
  return timer;
}

function missing(count: number | undefined, size: number, failure?: string): Error {
  const found = count === undefined ? 'rank 0 has not replied' : `${count} of ${size} ranks have connected`;
  const reason = failure === undefined ? '' : `: ${failure}`;
  return statusError(Status.TIMED_OUT, `exchange: ${found}${reason}`);
}

const FRAME_BYTES_MAX = 64 * 1024;
const LENGTH_BYTES = 4;

export function sendFrame(socket: Socket, bytes: Uint8Array): void {
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt32LE(bytes.byteLength);
  socket.write(length);
  socket.write(bytes);
}

/**
 * Reads a number of frames.
 * @param onFrames called once, with all of them
 * @param onBad called once if a frame is too long, or if the connection ends before the last frame
 */
function readFrames(
  socket: Socket,
  count: number,
  onFrames: (frames: Uint8Array[]) => void,
  onBad: (why: string) => void,
): void {
  let pending = Buffer.alloc(0);
  let isOver = false;
  const frames: Uint8Array[] = [];
  const end = (why: string): void => {
    if (isOver) return;
    isOver = true;
    onBad(why);
  };
  socket.on('data', (bytes: Buffer) => {
    if (isOver) return;
    pending = Buffer.concat([pending, bytes]);
    while (pending.byteLength >= LENGTH_BYTES) {
      const length = pending.readUInt32LE();
      if (length > FRAME_BYTES_MAX) {
        end(`a frame of ${length} bytes`);
        return;
      }
      if (pending.byteLength < LENGTH_BYTES + length) return;
      frames.push(new Uint8Array(pending.subarray(LENGTH_BYTES, LENGTH_BYTES + length)));
      pending = pending.subarray(LENGTH_BYTES + length);
      if (frames.length < count) continue;
      isOver = true;
      onFrames(frames);
      return;
    }
  });
  socket.on('error', (error) => end(error.message));
  socket.on('close', () => end('the connection has ended'));
}
