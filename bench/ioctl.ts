/** Cost of single ioctls of the in-process emulator: INFO, a poll by WAIT_CS, and CS with an empty command buffer. */

import { createEmulatedNode } from '../src/emulator/index.ts';
import { allocateScratch, mapAnonymous } from '../src/sys/index.ts';
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
  HL_WAIT_CS_ARGS,
  PacketOpcode,
  packetCtl,
  writeNop,
} from '../src/uapi/index.ts';
import { highOf } from '../src/ucs/type/int64.ts';
import { medianPerCallNs, type Result } from './timing.ts';

const NS_MAX = 1000;
const WARM_UP = 50_000;
const NOP_BYTES = 8;
/** Arguments first, then the chunk or the answer. */
const BLOCK_BYTES = 256;
const EXTRA_BYTE = 64;

/** Runs the measurements. */
export function benchIoctl(): Result[] {
  const node = createEmulatedNode({ cards: 1 });
  const file = node.open(0);
  const block = allocateScratch(BLOCK_BYTES);
  const answer = allocateScratch(BLOCK_BYTES);
  const buffer = mapAnonymous(4096);
  const { words } = block;
  const clear = (count: number): void => {
    for (let i = 0; i < count; i++) words[i] = 0;
  };
  const call = (request: number): void => {
    const result = file.ioctl(request | 0, block);
    if (result !== 0) throw new Error(`ioctl 0x${request.toString(16)}: ${result}`);
  };
  const writePointer = (word: number, address: number): void => {
    words[word] = address;
    words[word + 1] = highOf(address);
  };

  clear(10);
  writePointer(HL_MEM_ARGS.words.map_host_host_virt_addr, buffer.address);
  words[HL_MEM_ARGS.words.map_host_mem_size] = buffer.byteLength;
  words[HL_MEM_ARGS.words.op] = HL_MEM_OP.MAP;
  words[HL_MEM_ARGS.words.flags] = HL_MEM.USERPTR;
  call(file.numbers.MEMORY);
  const [low, high] = [words[0]!, words[1]!];
  writeNop(buffer.words, 0, packetCtl(PacketOpcode.NOP));

  const info = (target: number) => (): void => {
    clear(6);
    writePointer(HL_INFO_ARGS.words.return_pointer, target);
    words[HL_INFO_ARGS.words.return_size] = HL_INFO_DEVICE_STATUS.size;
    words[HL_INFO_ARGS.words.op] = HL_INFO_OP.DEVICE_STATUS;
    call(file.numbers.INFO);
  };
  const submit = (): void => {
    clear(EXTRA_BYTE / 4);
    const chunk = EXTRA_BYTE / 4;
    writePointer(HL_CS_ARGS.words.chunks_execute, block.address + EXTRA_BYTE);
    words[HL_CS_ARGS.words.num_chunks_execute] = 1;
    words[chunk + HL_CS_CHUNK.words.cb_handle] = low;
    words[chunk + HL_CS_CHUNK.words.cb_handle + 1] = high;
    words[chunk + HL_CS_CHUNK.words.queue_index] = 0;
    words[chunk + HL_CS_CHUNK.words.cb_size] = NOP_BYTES;
    words[chunk + HL_CS_CHUNK.words.cs_chunk_flags] = HL_CS_CHUNK_FLAGS.USER_ALLOC_CB;
    call(file.numbers.CS);
  };
  const wait = (): void => {
    clear(14);
    words[HL_WAIT_CS_ARGS.words.seq] = 1;
    call(file.numbers.WAIT_CS);
  };
  const results = [
    measure('ioctl INFO, answer in the block', info(block.address + EXTRA_BYTE)),
    measure('ioctl INFO, answer elsewhere', info(answer.address)),
    measure('ioctl CS with one NOP', submit),
    measure('ioctl WAIT_CS poll', wait),
  ];
  block.free();
  answer.free();
  node.close();
  buffer.close();
  return results;
}

function measure(name: string, run: () => void): Result {
  for (let i = 0; i < WARM_UP; i++) run();
  const ns = medianPerCallNs(11, 20_000, run);
  return {
    name,
    value: `median ${ns.toFixed(0)} ns`,
    ratio: ns / NS_MAX,
    target: `<= ${NS_MAX} ns`,
    met: ns <= NS_MAX,
  };
}
