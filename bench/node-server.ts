/** Cost of ioctls of a node server in another process, and eight clients that allocate, map and free at the same time. */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { connectEmulatedNode, type RemoteNode } from '../src/emulator/index.ts';
import { allocateScratch, mapShareable } from '../src/sys/index.ts';
import {
  HL_CS_ARGS,
  HL_CS_CHUNK,
  HL_CS_CHUNK_FLAGS,
  HL_INFO_ARGS,
  HL_INFO_DEVICE_STATUS,
  HL_INFO_OP,
  HL_MEM,
  HL_MEM_ARGS,
  HL_MEM_OP,
  PacketOpcode,
  packetCtl,
  writeNop,
} from '../src/uapi/index.ts';
import { highOf } from '../src/ucs/type/int64.ts';
import { medianPerCallNs, type Result } from './timing.ts';

const NS_MAX = 5000;
const WARM_UP = 20_000;
const CLIENTS = 8;
const ROUNDS = 1000;
const NOP_BYTES = 8;
const BLOCK_BYTES = 256;
const EXTRA_BYTE = 64;
const MAIN = fileURLToPath(new URL('../src/tools/main.js', import.meta.url));
const CLIENT = fileURLToPath(new URL('../test/fixtures/node-client-program.js', import.meta.url));

/** Runs the measurements against its own server. */
export async function benchNodeServer(): Promise<Result[]> {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-bench-'));
  const socket = join(folder, 'node.sock');
  const server = spawn(process.execPath, [MAIN, 'node', 'up', '--foreground', '--socket', socket], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    await once(server.stdout, 'data');
    const node = connectEmulatedNode(socket);
    const results = roundTrips(node);
    results.push(await churn(socket));
    node.shutdown();
    node.close();
    return results;
  } finally {
    server.kill();
    rmSync(folder, { recursive: true });
  }
}

function roundTrips(node: RemoteNode): Result[] {
  const file = node.open(0);
  const block = allocateScratch(BLOCK_BYTES);
  const buffer = mapShareable(4096);
  const { words } = block;
  const call = (request: number): void => {
    const result = file.ioctl(request | 0, block);
    if (result !== 0) throw new Error(`ioctl 0x${request.toString(16)}: ${result}`);
  };
  const writePointer = (word: number, address: number): void => {
    words[word] = address;
    words[word + 1] = highOf(address);
  };
  writePointer(HL_MEM_ARGS.words.map_host_host_virt_addr, buffer.address);
  words[HL_MEM_ARGS.words.map_host_mem_size] = buffer.byteLength;
  words[HL_MEM_ARGS.words.op] = HL_MEM_OP.MAP;
  words[HL_MEM_ARGS.words.flags] = HL_MEM.USERPTR;
  call(file.numbers.MEMORY);
  const [low, high] = [words[0]!, words[1]!];
  writeNop(buffer.words, 0, packetCtl(PacketOpcode.NOP));
  const info = (): void => {
    words.fill(0, 0, 6);
    writePointer(HL_INFO_ARGS.words.return_pointer, block.address + EXTRA_BYTE);
    words[HL_INFO_ARGS.words.return_size] = HL_INFO_DEVICE_STATUS.size;
    words[HL_INFO_ARGS.words.op] = HL_INFO_OP.DEVICE_STATUS;
    call(file.numbers.INFO);
  };
  const submit = (): void => {
    words.fill(0, 0, 32);
    const chunk = EXTRA_BYTE / 4;
    writePointer(HL_CS_ARGS.words.chunks_execute, block.address + EXTRA_BYTE);
    words[HL_CS_ARGS.words.num_chunks_execute] = 1;
    words[chunk + HL_CS_CHUNK.words.cb_handle] = low;
    words[chunk + HL_CS_CHUNK.words.cb_handle + 1] = high;
    words[chunk + HL_CS_CHUNK.words.cb_size] = NOP_BYTES;
    words[chunk + HL_CS_CHUNK.words.cs_chunk_flags] = HL_CS_CHUNK_FLAGS.USER_ALLOC_CB;
    call(file.numbers.CS);
  };
  const results = [measure('node server: ioctl INFO', info), measure('node server: ioctl CS with one NOP', submit)];
  file.close();
  block.free();
  buffer.close();
  return results;
}

function measure(name: string, run: () => void): Result {
  for (let i = 0; i < WARM_UP; i++) run();
  const ns = medianPerCallNs(11, 5000, run);
  const target = `<= ${NS_MAX / 1000} us`;
  return { name, value: `median ${(ns / 1000).toFixed(2)} us`, ratio: ns / NS_MAX, target, met: ns <= NS_MAX };
}

/** Each client fails with an exit code if any of its ioctls does. */
async function churn(socket: string): Promise<Result> {
  const clients = Array.from({ length: CLIENTS }, (_, minor): ChildProcess => {
    const args = [CLIENT, 'churn', socket, String(minor), String(ROUNDS)];
    return spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  });
  const begin = performance.now();
  const codes = await Promise.all(clients.map(async (client) => (await once(client, 'exit'))[0] as number | null));
  const failed = codes.filter((code) => code !== 0).length;
  return {
    name: `node server: ${CLIENTS} x ${ROUNDS} maps`,
    value: `${((performance.now() - begin) / 1000).toFixed(1)} s, ${failed} clients failed`,
    ratio: undefined,
    target: 'no error',
    met: failed === 0,
  };
}
