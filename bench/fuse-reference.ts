/** The raw primitive of device nodes: a file of a FUSE server in C that answers ioctls after a given time of work, and a client in C. Needs root and FUSE. */

import { execFileSync } from 'node:child_process';
import type { CompilerFolder } from '../test/fixtures/libucp/c-library.ts';

/** Whether server and client share a processor, or have one each. */
export type Place = 'one processor' | 'two processors';

/** Arguments: file to mount on, processors of server and client, work in nanoseconds. Prints the median of the round trips in nanoseconds. */
const SOURCE = `
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
enum { CALLS = 20000, ARGUMENT_BYTES = 24 };
static long times[CALLS];
static char in[0x21000], out[4096];
static long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000L + t.tv_nsec; }
static int order(const void *a, const void *b) { return (*(long *)a > *(long *)b) - (*(long *)a < *(long *)b); }
static void check(int bad, const char *what) { if (bad) { perror(what); exit(1); } }
static void stay(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  check(sched_setaffinity(0, sizeof set, &set), "sched_setaffinity");
}
static void client(const char *path) {
  char argument[ARGUMENT_BYTES] = {0};
  int fd = open(path, O_RDWR);
  check(fd < 0, "open");
  for (int i = 0; i < CALLS; i++) {
    long start = now();
    check(ioctl(fd, _IOWR('H', 1, char[ARGUMENT_BYTES]), argument), "ioctl");
    times[i] = now() - start;
  }
  qsort(times, CALLS, sizeof times[0], order);
  printf("%ld\\n", times[CALLS / 2]);
  exit(0);
}
int main(int argc, char **argv) {
  char options[100];
  int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  check(fd < 0, "/dev/fuse");
  snprintf(options, sizeof options, "fd=%d,rootmode=100000,user_id=0,group_id=0", fd);
  check(mount("reference", argv[1], "fuse", MS_NOSUID | MS_NODEV, options), "mount");
  pid_t child = fork();
  if (child == 0) { stay(atoi(argv[3])); client(argv[1]); }
  stay(atoi(argv[2]));
  long work = atol(argv[4]);
  int status = 0;
  for (unsigned turn = 0;; turn++) {
    if (read(fd, in, sizeof in) < 0) {
      check(errno != EAGAIN && errno != EINTR && errno != ENOENT, "read");
      if (turn % 256 == 0 && waitpid(child, &status, WNOHANG) == child) break;
      continue;
    }
    struct fuse_in_header *request = (void *)in;
    struct fuse_out_header *answer = (void *)out;
    memset(out, 0, sizeof out);
    answer->unique = request->unique;
    answer->len = sizeof *answer;
    switch (request->opcode) {
      case FUSE_INIT: {
        struct fuse_init_out *init = (void *)(answer + 1);
        init->major = 7;
        init->minor = 31;
        init->max_write = 65536;
        answer->len += sizeof *init;
        break;
      }
      case FUSE_OPEN: {
        struct fuse_open_out *opened = (void *)(answer + 1);
        opened->open_flags = FOPEN_DIRECT_IO;
        answer->len += sizeof *opened;
        break;
      }
      case FUSE_GETATTR: {
        struct fuse_attr_out *attributes = (void *)(answer + 1);
        attributes->attr.ino = 1;
        attributes->attr.nlink = 1;
        attributes->attr.mode = 0100666;
        answer->len += sizeof *attributes;
        break;
      }
      case FUSE_IOCTL: {
        answer->len += sizeof(struct fuse_ioctl_out) + ARGUMENT_BYTES;
        for (long end = now() + work; now() < end;) {}
        break;
      }
      case FUSE_RELEASE: break;
      default: answer->error = -ENOSYS;
    }
    if (request->opcode == FUSE_FORGET) continue;
    check(write(fd, out, answer->len) < 0 && errno != ENOENT, "write");
  }
  umount2(argv[1], MNT_DETACH);
  return status != 0;
}
`;

/** The compiled program of the reference, and the file that it mounts on. */
export class FuseReference {
  readonly #program: string;
  readonly #file: string;

  constructor(folder: CompilerFolder) {
    this.#program = folder.program('fuse-reference', SOURCE, ['-O2']);
    this.#file = folder.file('reference', '');
  }

  /**
   * Median round trip of an ioctl, in ns.
   * @param workNs time between request and answer
   */
  median(place: Place, workNs: number): number {
    const client = place === 'one processor' ? '0' : '1';
    return Number(execFileSync(this.#program, [this.#file, '0', client, String(workNs)], { encoding: 'utf8' }));
  }
}
