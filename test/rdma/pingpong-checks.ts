/** Checks against a program of rdma-core: ibv_rc_pingpong is the other end of a connection, as server and as client. */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { WcStatus } from '../../src/verbs/abi.ts';
import { FIRST_PSN, RdmaEnd } from '../fixtures/transports/rdma-end.ts';
import { check, completions, verbs } from './guest.ts';

const ITERATIONS = 20;
const BYTES = 4096;
/** Length of the address that both programs send: `0000:000011:fffffe:` and the GID, with its final 0. */
const ADDRESS_BYTES = 52;
const DONE = Buffer.from('done\0');
const MTU_1024 = 3;
/** Packets and answers are slow here: 67 ms until they are sent again. */
const TIMEOUT = 14;

/** Runs them. */
export async function pingpongChecks(): Promise<void> {
  await check('ibv_rc_pingpong as server answers', async () => {
    const program = start(18_515, 'rxe1', []);
    const socket = await connected(18_515);
    const end = new RdmaEnd(verbs.open('rxe0'));
    try {
      for (let id = 0; id < ITERATIONS; id++) assert.equal(end.receive(id, BYTES, BYTES), 0);
      socket.write(addressOf(end));
      connectTo(end, await received(socket));
      socket.write(DONE);
      for (let round = 0; round < ITERATIONS; round++) {
        assert.equal(end.send(100, 0, BYTES, 0), 0);
        await expectGood(end, 2);
      }
      await expectEnd(program);
    } finally {
      close(end, socket);
    }
  });

  await check('ibv_rc_pingpong as client is answered', async () => {
    const server = createServer().listen(18_516, '127.0.0.1');
    await once(server, 'listening');
    const program = start(18_516, 'rxe0', ['127.0.0.1']);
    const [socket] = (await once(server, 'connection')) as [Socket];
    server.close();
    const end = new RdmaEnd(verbs.open('rxe1'));
    try {
      for (let id = 0; id < ITERATIONS; id++) assert.equal(end.receive(id, BYTES, BYTES), 0);
      connectTo(end, await received(socket));
      socket.write(addressOf(end));
      await expectGood(end, 1);
      for (let round = 0; round < ITERATIONS; round++) {
        assert.equal(end.send(100, 0, BYTES, 0), 0);
        await expectGood(end, round === ITERATIONS - 1 ? 1 : 2);
      }
      await expectEnd(program);
    } finally {
      close(end, socket);
    }
  });
}

interface Program {
  readonly child: ChildProcess;
  output: string;
}

function start(port: number, device: string, peer: readonly string[]): Program {
  const options = ['-d', device, '-g', '0', '-n', String(ITERATIONS), '-s', String(BYTES), '-p', String(port)];
  const child = spawn('ibv_rc_pingpong', [...options, ...peer], { stdio: ['ignore', 'pipe', 'pipe'] });
  const program: Program = { child, output: '' };
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (text: Buffer) => {
      program.output += text.toString();
    });
  }
  return program;
}

async function expectEnd(program: Program): Promise<void> {
  const { child } = program;
  if (child.exitCode === null) await once(child, 'exit');
  assert.equal(child.exitCode, 0, program.output);
  assert.match(program.output, new RegExp(`${ITERATIONS} iters in`));
}

async function expectGood(end: RdmaEnd, count: number): Promise<void> {
  for (const { status } of await completions(end, count)) assert.equal(status, WcStatus.SUCCESS);
}

/** Connects to the server, which may not listen yet. */
async function connected(port: number): Promise<Socket> {
  for (;;) {
    const socket = connect(port, '127.0.0.1');
    try {
      await once(socket, 'connect');
      return socket;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ECONNREFUSED') throw error;
      await pause(50);
    }
  }
}

function addressOf({ qp, gid }: RdmaEnd): Buffer {
  const hex = (value: number, digits: number): string => value.toString(16).padStart(digits, '0');
  return Buffer.from(`0000:${hex(qp.qpNum, 6)}:${hex(FIRST_PSN, 6)}:${Buffer.from(gid).toString('hex')}\0`);
}

async function received(socket: Socket): Promise<Buffer> {
  for (;;) {
    const bytes = socket.read(ADDRESS_BYTES) as Buffer | null;
    if (bytes !== null) return bytes;
    await once(socket, 'readable');
  }
}

function connectTo(end: RdmaEnd, address: Buffer): void {
  const [, qpNum = '', psn = '', gid = ''] = address.toString('latin1').slice(0, -1).split(':');
  const peer = { gid: Buffer.from(gid, 'hex'), qpNum: Number.parseInt(qpNum, 16), psn: Number.parseInt(psn, 16) };
  end.connectTo(peer, { pathMtu: MTU_1024, timeout: TIMEOUT });
}

function close(end: RdmaEnd, socket: Socket): void {
  const { context } = end;
  end.close();
  context.close();
  socket.destroy();
}
