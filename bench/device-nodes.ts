/** Cost of ioctls through a device node of an emulated card: measured by a C program under `gaudi-ucx run`, on any processors and on one. Needs root, FUSE and a C compiler. */

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { CompilerFolder, compilerSkipReason } from '../test/fixtures/libucp/c-library.ts';
import { FuseReference, type Place } from './fuse-reference.ts';
import type { Result } from './timing.ts';

const US_MAX = 12;
const CALLS = 20_000;
const MAIN = new URL('../lib/main.js', import.meta.url).pathname;

/** Prints the median of the round trips in nanoseconds: INFO with its answer in memory of the program, and CB INFO, which has none. */
const SOURCE = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
enum { CALLS = ${CALLS} };
static long times[CALLS];
static long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000L + t.tv_nsec; }
static int order(const void *a, const void *b) { return (*(long *)a > *(long *)b) - (*(long *)a < *(long *)b); }
static long median(int fd, unsigned long request, const void *args) {
  char block[64];
  for (int i = 0; i < CALLS; i++) {
    memcpy(block, args, 24);
    long start = now();
    if (ioctl(fd, request, block) != 0) exit(1);
    times[i] = now() - start;
  }
  qsort(times, CALLS, sizeof times[0], order);
  return times[CALLS / 2];
}
int main(void) {
  int fd = open("/dev/accel/accel0", O_RDWR);
  uint64_t answer;
  struct { uint64_t pointer; uint32_t size, op, a, b; } info = {(uintptr_t)&answer, 8, 4, 0, 0};
  struct { uint64_t handle; uint32_t op, size, context, flags; } cb = {0, 0, 4096, 0, 0};
  unsigned long CB = _IOWR('d', 0x41, cb), INFO = _IOWR('d', 0x40, info);
  if (fd < 0 || ioctl(fd, CB, &cb) != 0) return 1;
  cb.op = 2;
  printf("%ld %ld\\n", median(fd, CB, &cb), median(fd, INFO, &info));
  return 0;
}
`;

const SUBMISSIONS = 20_000;
const BATCH = 256;
/** Targets per submission of a NOP, with a wait after each and after a batch. */
const NOP_US_MAX = [30, 5] as const;

/** Prints the medians per submission of a NOP in nanoseconds: with a wait after each, and after each batch. Its argument tells whether the command buffer is the driver's, as on gaudi. */
const NOP_SOURCE = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
enum { SUBMISSIONS = ${SUBMISSIONS}, BATCH = ${BATCH}, USERPTR = 4, MAP = 2, USER_CB = 1 };
struct memory { uint64_t a, b, c; uint32_t op, flags, context, elements; };
struct chunk { uint64_t cb; uint32_t queue, size, flags, pad[11]; };
struct submission { uint64_t restore, execute, seq; uint32_t restores, executes, timeout, flags, context; uint8_t pad[4]; };
struct wait { uint64_t seq, timeout_us; uint32_t context, flags; uint64_t more[4]; };
struct cb { uint64_t handle; uint32_t op, size, context, flags; };
static long times[SUBMISSIONS];
static struct chunk chunk = {.size = 8};
static long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000L + t.tv_nsec; }
static int order(const void *a, const void *b) { return (*(long *)a > *(long *)b) - (*(long *)a < *(long *)b); }
static void check(int bad, const char *what) { if (bad) { perror(what); exit(1); } }
static long median(int fd, int batch) {
  int rounds = SUBMISSIONS / batch;
  for (int i = 0; i < rounds; i++) {
    struct wait wait = {.timeout_us = 10000000};
    long start = now();
    for (int j = 0; j < batch; j++) {
      struct submission args = {.execute = (uintptr_t)&chunk, .executes = 1};
      check(ioctl(fd, _IOWR('d', 0x42, struct submission), &args), "submit");
      wait.seq = args.restore;
    }
    check(ioctl(fd, _IOWR('d', 0x43, struct wait), &wait) || (uint32_t)wait.seq, "wait");
    times[i] = (now() - start) / batch;
  }
  qsort(times, rounds, sizeof times[0], order);
  return times[rounds / 2];
}
int main(int argc, char **argv) {
  int fd = open("/dev/accel/accel0", O_RDWR);
  check(fd < 0, "open");
  uint32_t *packet;
  if (argv[1][0] == 'd') {
    struct cb cb = {.size = 4096};
    check(ioctl(fd, _IOWR('d', 0x41, cb), &cb), "command buffer");
    chunk.cb = cb.handle;
    packet = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, cb.handle);
    check(packet == MAP_FAILED, "mmap");
  } else {
    packet = aligned_alloc(4096, 4096);
    struct memory map = {.a = (uintptr_t)packet, .c = 4096, .op = MAP, .flags = USERPTR};
    packet[0] = 0;
    check(ioctl(fd, _IOWR('d', 0x44, map), &map), "map");
    chunk.cb = map.a;
    chunk.flags = USER_CB;
  }
  packet[0] = 0;
  packet[1] = 0x0a000000;
  printf("%ld %ld\\n", median(fd, 1), median(fd, BATCH));
  return 0;
}
`;

/**
 * Prints the medians of calls that a supervisor handles, and of a wait for a complete submission, in nanoseconds; then the means of MEMORY MAP and UNMAP, and
 * of the life of a command buffer, with 0 and with 32,000 other mappings. Without a card it prints the first three only.
 */
const CALLS_SOURCE = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
enum { ROUNDS = 5000, MAPPINGS = 32000, LIVES = 400, USERPTR = 4, MAP = 2, UNMAP = 3 };
struct memory { uint64_t a, b, c; uint32_t op, flags, context, elements; };
struct wait { uint64_t seq, timeout_us; uint32_t context, flags; uint64_t more[4]; };
struct cb { uint64_t handle; uint32_t op, size, context, flags; };
struct chunk { uint64_t cb; uint32_t queue, size, flags, pad[11]; };
struct submission { uint64_t restore, execute, seq; uint32_t restores, executes, timeout, flags, context; uint8_t pad[4]; };
static long times[ROUNDS];
static long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000L + t.tv_nsec; }
static int order(const void *a, const void *b) { return (*(long *)a > *(long *)b) - (*(long *)a < *(long *)b); }
static void check(int bad, const char *what) { if (bad) { perror(what); exit(1); } }
#define MEDIAN(call) for (int i = 0; i < ROUNDS; i++) { long start = now(); call; times[i] = now() - start; } \
  qsort(times, ROUNDS, sizeof times[0], order); printf("%ld ", times[ROUNDS / 2])
static void lives(int fd, void *page) {
  long start = now();
  for (int i = 0; i < LIVES; i++) {
    struct memory map = {.a = (uintptr_t)page, .c = 4096, .op = MAP, .flags = USERPTR};
    check(ioctl(fd, _IOWR('d', 0x44, map), &map), "map");
    struct memory unmap = {.a = map.a, .op = UNMAP};
    check(ioctl(fd, _IOWR('d', 0x44, unmap), &unmap), "unmap");
  }
  long middle = now();
  for (int i = 0; i < LIVES; i++) {
    struct cb cb = {.size = 4096};
    check(ioctl(fd, _IOWR('d', 0x41, cb), &cb), "command buffer");
    void *mapped = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, cb.handle);
    check(mapped == MAP_FAILED || munmap(mapped, 4096), "mmap");
    cb.op = 1;
    check(ioctl(fd, _IOWR('d', 0x41, cb), &cb), "destroy");
  }
  printf("%ld %ld ", (middle - start) / LIVES, (now() - middle) / LIVES);
}
int main(void) {
  struct stat status;
  int plain = open("/etc/passwd", O_RDONLY), fd = open("/dev/accel/accel0", O_RDWR);
  MEDIAN(check(fstat(plain, &status), "fstat"));
  MEDIAN(check(stat("/etc/passwd", &status), "stat"));
  MEDIAN(check(munmap(mmap(0, 4096, PROT_READ, MAP_PRIVATE, plain, 0), 4096), "mmap"));
  if (fd < 0) return 0;
  uint32_t *page = aligned_alloc(4096, 4096);
  page[0] = 0, page[1] = 0x0a000000;
  struct memory map = {.a = (uintptr_t)page, .c = 4096, .op = MAP, .flags = USERPTR};
  check(ioctl(fd, _IOWR('d', 0x44, map), &map), "map");
  struct chunk chunk = {.cb = map.a, .size = 8, .flags = 1};
  struct submission args = {.execute = (uintptr_t)&chunk, .executes = 1};
  check(ioctl(fd, _IOWR('d', 0x42, args), &args), "submit");
  uint64_t seq = args.restore;
  MEDIAN(struct wait wait = {.seq = seq}; wait.timeout_us = 5000000; check(ioctl(fd, _IOWR('d', 0x43, wait), &wait), "wait"));
  lives(fd, page);
  for (int i = 0; i < MAPPINGS; i++)
    check(mmap(0, 4096, i & 1 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED, "mmap");
  lives(fd, page);
  return 0;
}
`;

/** The rows of {@link CALLS_SOURCE}. */
const CALLS_ROWS = [
  'fstat of a plain file',
  'stat of a plain file',
  'mmap and munmap of a plain file',
  'WAIT_CS for a complete submission, time-out 5 s',
  'MEMORY MAP and UNMAP',
  'life of a command buffer',
  'MEMORY MAP and UNMAP, with 32,000 mappings',
  'life of a command buffer, with 32,000 mappings',
];

/** Work of the server in C, in ns: what the node does for an ioctl without data takes longer. With none it answers before its caller sleeps. */
const REFERENCE_WORK_NS = 1000;

/** Runs the measurements; none, with the reason, where they are not possible. */
export function benchDeviceNodes(): Result[] {
  const reason = missing();
  if (reason !== undefined) {
    console.log(`device nodes are not measured: ${reason}`);
    return [];
  }
  using folder = new CompilerFolder();
  const reference = new FuseReference(folder);
  const ioctls = folder.program('ioctl', SOURCE, ['-O2']);
  const nops = folder.program('nops', NOP_SOURCE, ['-O2']);
  const calls = folder.program('calls', CALLS_SOURCE, ['-O2']);
  return (['two processors', 'one processor'] as const).flatMap((place) => {
    const floorUs = reference.median(place, REFERENCE_WORK_NS) / 1000;
    return [
      ...measure(place, floorUs, ioctls),
      ...measureCalls(place, calls),
      ...measureNops('gaudi', place, floorUs, [nops, 'driver']),
      ...measureNops('gaudi2', place, floorUs, [nops, 'user']),
    ];
  });
}

function missing(): string | undefined {
  if (process.getuid!() !== 0) return 'not root';
  if (!existsSync('/dev/fuse')) return 'no /dev/fuse';
  return compilerSkipReason();
}

function measure(place: Place, floorUs: number, program: string): Result[] {
  return run(place, [program], 'gaudi2').map((us, index) =>
    result(`ioctl ${index === 0 ? 'without an answer in memory' : 'INFO'}`, place, us, US_MAX, floorUs),
  );
}

/** The calls under `run`, beside the first three of them without it. */
function measureCalls(place: Place, program: string): Result[] {
  const bare = execFileSync(program, { encoding: 'utf8' })
    .trim()
    .split(' ')
    .map((text) => Number(text) / 1000);
  return run(place, [program], 'gaudi2').map((us, index) => ({
    name: `device node, ${CALLS_ROWS[index]}, ${place}`,
    value: `${us.toFixed(1)} us${bare[index] === undefined ? '' : `, without run ${bare[index].toFixed(1)} us`}`,
    ratio: undefined,
    target: 'reported',
    met: undefined,
  }));
}

function measureNops(asic: string, place: Place, floorUs: number, program: readonly string[]): Result[] {
  return run(place, program, asic).map((us, index) => {
    const each = index === 0;
    const name = `NOP submission on ${asic}, wait after ${each ? 'each' : `batches of ${BATCH}`}`;
    return result(name, place, us, NOP_US_MAX[each ? 0 : 1], each ? 2 * floorUs : floorUs);
  });
}

/** Runs a program on an emulated card. Returns the two medians that it prints, in microseconds. */
function run(place: Place, program: readonly string[], asic: string): number[] {
  const prefix = place === 'one processor' ? ['taskset', '-c', '0'] : [];
  const [file, ...args] = [...prefix, process.execPath, MAIN, 'run', '--cards', '1', '--asic', asic, '--', ...program];
  const printed = execFileSync(file!, args, { encoding: 'utf8' }).trim().split(' ');
  return printed.map((text) => Number(text) / 1000);
}

/** A row; `floorUs` is the time of the same number of ioctls that a server in C answers. */
function result(name: string, place: Place, us: number, max: number, floorUs: number): Result {
  return {
    name: `device node, ${name}, ${place}`,
    value: `median ${us.toFixed(1)} us, server in C ${floorUs.toFixed(1)} us`,
    ratio: us / max,
    target: `<= ${max} us`,
    met: us <= max,
  };
}
