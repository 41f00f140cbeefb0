/** Faults in sys/file: partial reads, signals, locks, pipes, masks of events, reservations, devices. */

import type { Area } from './fault.ts';

export const SYS_FILE: Area = {
  name: 'sys-file',
  suites: ['test/integration/process/', 'test/contract/'],
  faults: [
    {
      file: 'src/sys/file/file.ts',
      before: 'fs.writeSync(fd, source, 0, source.byteLength, offset)',
      after: 'fs.writeSync(fd, source, 0, source.byteLength, 0)',
      breaks: 'a write is at its offset',
    },
    {
      file: 'src/sys/file/file.ts',
      before: 'const F_DUPFD_CLOEXEC = 1030;',
      after: 'const F_DUPFD_CLOEXEC = 0;',
      breaks: 'a duplicate is close-on-exec',
    },
    {
      file: 'src/sys/file/file.ts',
      before: 'fcntl(fd, F_SETFD, cloexec ? FD_CLOEXEC : 0);',
      after: 'fcntl(fd, F_SETFD, FD_CLOEXEC);',
      breaks: 'a descriptor can be inherited',
    },
    {
      file: 'src/sys/file/file.ts',
      before: 'if (code === Errno.EAGAIN) return false;',
      after: '',
      breaks: 'a lock of another is not an error',
    },
    {
      file: 'src/sys/file/file.ts',
      before: 'do result = flock(fd, LOCK_EX | LOCK_NB);',
      after: 'do result = flock(fd, 1 | LOCK_NB);',
      breaks: 'a lock is exclusive',
    },
    {
      file: 'src/sys/file/file.ts',
      before: 'do result = flock(fd, LOCK_EX);\n  while (isInterrupted(result));',
      after: 'result = flock(fd, LOCK_EX);',
      breaks: 'waiting for a lock continues after a signal',
    },
    {
      file: 'src/sys/file/file.ts',
      before: 'do result = flock(fd, LOCK_EX);',
      after: 'do result = flock(fd, LOCK_EX | LOCK_NB);',
      breaks: 'a lock is waited for',
    },
    {
      file: 'src/sys/file/file.ts',
      before: 'return [noteDescriptor(fdPair.words[0]!), noteDescriptor(fdPair.words[1]!)];',
      after: 'return [noteDescriptor(fdPair.words[1]!), noteDescriptor(fdPair.words[0]!)];',
      breaks: 'the reading end comes first',
    },
    {
      file: 'src/sys/file/file.ts',
      before: 'Math.max(pollOnce(fd, events, Math.min(timeoutMs, POLL_TIMEOUT_MS_MAX)), 0)',
      after: 'pollOnce(fd, events, Math.min(timeoutMs, POLL_TIMEOUT_MS_MAX))',
      breaks: 'a wait that a signal ends has no events',
    },
    {
      file: 'src/sys/file/file.ts',
      before: 'Math.min(timeoutMs, POLL_TIMEOUT_MS_MAX)',
      after: 'timeoutMs',
      breaks: 'a wait has a limit',
    },
    {
      file: 'src/sys/file/file.ts',
      before: 'Math.min(timeoutMs, POLL_TIMEOUT_MS_MAX)',
      after: '0',
      breaks: 'a wait waits',
    },
    {
      file: 'src/sys/file/file.ts',
      before: 'pollRecord.words[1]! >>> 16',
      after: 'pollRecord.words[1]!',
      breaks: 'events that were found are no events that were asked for',
    },
    {
      file: 'src/sys/file/file.ts',
      before: '  pollRecord.words[1] = events;\n',
      after: '  pollRecord.words[1]! |= events;\n',
      breaks: 'events of an earlier poll are not asked for',
    },
    {
      file: 'src/sys/file/file.ts',
      before: 'if (code !== Errno.EINTR) return -code;',
      after: 'return -code;',
      breaks: 'a read continues after a signal',
    },
    {
      file: 'src/sys/file/file.ts',
      before: '  throw error;\n}\n\n/** Runs a call',
      after: '  return 0;\n}\n\n/** Repeats',
      breaks: 'an error without a number is not hidden',
    },
    {
      file: 'src/sys/file/file-status.ts',
      before: 'stats.mode & 0o7777',
      after: 'stats.mode & 0o777',
      breaks: 'permissions have the sticky and set-id bits',
    },
    {
      file: 'src/sys/file/file-status.ts',
      before: 'const [major, minor] = [view',
      after: 'const [minor, major] = [view',
      breaks: 'a device has its major number first',
    },
    {
      file: 'src/sys/file/file-status.ts',
      before: '!== 0) return undefined;\n  const [major',
      after: "!== 0 && tid === 'self') return undefined;\n  const [major",
      breaks: 'a thread that has ended has no files',
    },
    {
      file: 'src/sys/file/file-status.ts',
      before: 'Math.min(pieceBytes, byteLength - done)',
      after: 'pieceBytes',
      breaks: 'a file is not longer than asked for',
    },
    {
      file: 'src/sys/file/file-status.ts',
      before: '      done += length;\n',
      after: '      done += pieceBytes;\n',
      breaks: 'a file is reserved in pieces',
      equivalent: 'only the last piece is shorter than the others, and nothing follows it',
    },
    {
      file: 'src/sys/file/file-status.ts',
      before: 'if (fallocate(fd, 0, done, length) === 0) {',
      after: 'if (fallocate(fd, 0, 0, length) === 0) {',
      breaks: 'all of a file is reserved',
    },
    {
      file: 'src/sys/file/udmabuf.ts',
      before: 'constants.R_OK | constants.W_OK',
      after: 'constants.F_OK',
      breaks: 'a device that may not be opened is not usable',
    },
    {
      file: 'src/sys/file/udmabuf.ts',
      before: '-fd, `UDMABUF_CREATE',
      after: 'fd, `UDMABUF_CREATE',
      breaks: 'a failed creation has its errno',
    },
    {
      file: 'src/sys/file/mount.ts',
      before: 'Number.parseInt(octal, 8)',
      after: 'Number.parseInt(octal, 10)',
      breaks: 'escapes are octal',
    },
    {
      file: 'src/sys/file/mount.ts',
      before: 'umount2(target, MNT_DETACH)',
      after: 'umount2(target, 0)',
      breaks: 'a mount in use ends later',
    },
    {
      file: 'src/sys/file/fuse.ts',
      before: 'status.isCharacterDevice() && status.rdev === FUSE_NUMBER',
      after: 'status.isCharacterDevice()',
      breaks: 'another device is not /dev/fuse',
    },
    {
      file: 'src/sys/file/fuse.ts',
      before: '    if (code === Errno.EAGAIN) return 0;\n',
      after: '',
      breaks: 'no request is not an error',
    },
    {
      file: 'src/sys/file/fuse.ts',
      before: 'if (code !== Errno.EINTR && code !== Errno.ENOENT) return -code;',
      after: 'if (code !== Errno.EINTR) return -code;',
      breaks: 'a withdrawn request is passed over',
    },
  ],
};
