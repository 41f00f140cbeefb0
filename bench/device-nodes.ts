/** Cost of ioctls through a device node of an emulated card: measured by a C program under `gaudi-ucx run`, on any processors and on one. Needs root, FUSE and a C compiler. */

import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
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

/** Runs the measurements; none, with the reason, where they are not possible. */
export function benchDeviceNodes(): Result[] {
  const reason = missing();
  if (reason !== undefined) {
    console.log(`device nodes are not measured: ${reason}`);
    return [];
  }
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-bench-'));
  try {
    const program = join(folder, 'ioctl');
    writeFileSync(`${program}.c`, SOURCE);
    execFileSync('cc', ['-O2', '-o', program, `${program}.c`]);
    const together = ['taskset', '-c', '0'];
    return [...measure('any processors', program, []), ...measure('one processor', program, together)];
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function missing(): string | undefined {
  if (process.getuid!() !== 0) return 'not root';
  if (!existsSync('/dev/fuse')) return 'no /dev/fuse';
  return spawnSync('cc', ['--version']).status === 0 ? undefined : 'no C compiler (cc)';
}

function measure(where: string, program: string, prefix: readonly string[]): Result[] {
  const [file, ...args] = [...prefix, process.execPath, MAIN, 'run', '--cards', '1', '--', program];
  const texts = execFileSync(file!, args, { encoding: 'utf8' }).trim().split(' ');
  return ['without an answer in memory', 'INFO'].map((name, index) => {
    const us = Number(texts[index]) / 1000;
    return {
      name: `device node, ioctl ${name}, ${where}`,
      value: `median ${us.toFixed(1)} us`,
      ratio: us / US_MAX,
      target: `<= ${US_MAX} us`,
      met: us <= US_MAX,
    };
  });
}
