/** Faults in sys/socket: layouts, descriptors on failure paths, partial sends, limits, errors. */

import type { Area } from './fault.ts';

export const SYS_SOCKET: Area = {
  name: 'sys-socket',
  suites: ['test/integration/process/', 'test/contract/'],
  faults: [
    {
      file: 'src/sys/socket/unix-socket.ts',
      before: '    if (received < 0) return -errno();\n',
      after: '    if (received < 0) return received;\n',
      breaks: 'a failed receive has its errno',
    },
    {
      file: 'src/sys/socket/unix-socket.ts',
      before: '      for (const fd of arrived) closeDescriptor(fd);\n',
      after: '',
      breaks: 'the descriptors of a message that does not fit are closed',
    },
    {
      file: 'src/sys/socket/unix-socket.ts',
      before: '(MSG_CTRUNC | MSG_TRUNC)',
      after: 'MSG_TRUNC',
      breaks: 'lost descriptors are an error',
    },
    {
      file: 'src/sys/socket/unix-socket.ts',
      before: 'for (const fd of arrived) fds.push(fd);',
      after: 'fds.splice(0, fds.length, ...arrived);',
      breaks: 'received descriptors are appended',
    },
    {
      file: 'src/sys/socket/unix-socket.ts',
      before: 'uid: view.getUint32(IOVEC + 4, true)',
      after: 'uid: view.getUint32(IOVEC + 8, true)',
      breaks: 'the user of the peer is not a group',
    },
    {
      file: 'src/sys/socket/unix-socket.ts',
      before: 'code === Errno.EAGAIN || code === Errno.ECONNABORTED) return undefined',
      after: 'code === Errno.EAGAIN) return undefined',
      breaks: 'a client that has given up is not an error',
    },
    {
      file: 'src/sys/socket/unix-socket.ts',
      before: 'listen(fd, backlog) === 0',
      after: 'listen(fd, 0) === 0',
      breaks: 'the backlog is that of the caller',
    },
    {
      file: 'src/sys/socket/unix-socket.ts',
      before: '(isAbstract(path) ? 0 : 1)',
      after: '1',
      breaks: 'an abstract name has no zero byte at its end',
    },
    {
      file: 'src/sys/socket/unix-socket.ts',
      before: '  u8[2 + bytes.byteLength] = 0;\n',
      after: '',
      breaks: 'a path ends where it does, whatever was there before',
    },
    {
      file: 'src/sys/socket/unix-socket.ts',
      before: 'view.setUint32(8, 0, true);',
      after: '',
      breaks: 'no address of an earlier call is sent to',
      equivalent: 'Linux reads no length of an address that is not given',
    },
    {
      file: 'src/sys/socket/unix-socket.ts',
      before: 'at + 4 <= header + length',
      after: 'at + 4 < header + length',
      breaks: 'the last descriptor is received',
    },
    {
      file: 'src/sys/socket/tcp-socket.ts',
      before: 'code === Errno.EINPROGRESS || code === Errno.EINTR',
      after: 'code === Errno.EINPROGRESS',
      breaks: 'an attempt to connect continues after a signal',
    },
    {
      file: 'src/sys/socket/tcp-socket.ts',
      before:
        'packSockaddr(address, block)) === 0) return true;\n  const code = errno();\n  if (code === Errno.EINPROGRESS || code === Errno.EINTR) return false;',
      after:
        'packSockaddr(address, block)) === 0) return true;\n  const code = errno();\n  if (code === Errno.EINPROGRESS || code === Errno.EINTR) return true;',
      breaks: 'an attempt in progress is not yet connected',
    },
    {
      file: 'src/sys/socket/tcp-socket.ts',
      before: 'reuse ? 1 : 0',
      after: '1',
      breaks: 'a port is not reused if the caller says so',
    },
    {
      file: 'src/sys/socket/tcp-socket.ts',
      before: 'isUnspecified(address.address) ? 0 : 1',
      after: '0',
      breaks: 'a socket of one address of IPv6 takes no IPv4',
      equivalent: 'Linux sets the option for a socket that is bound to one address.',
    },
    {
      file: 'src/sys/socket/tcp-socket.ts',
      before: '    close(fd);\n    throw error;',
      after: '    throw error;',
      breaks: 'a socket that cannot listen is closed',
    },
    {
      file: 'src/sys/socket/tcp-socket.ts',
      before: 'do accepted = accept4(fd, 0, 0, SOCK_NONBLOCK_CLOEXEC);',
      after: 'do accepted = accept4(fd, 0, 0, 0o2000000);',
      breaks: 'an accepted socket does not block',
    },
    {
      file: 'src/sys/socket/tcp-socket.ts',
      before: 'return accepted >= 0 ? noteDescriptor(accepted) : -errno();',
      after: 'return accepted >= 0 ? noteDescriptor(accepted) : -Errno.EAGAIN;',
      breaks: 'a failed accept has its errno',
    },
    {
      file: 'src/sys/socket/tcp-socket.ts',
      before: '  setSocketOption(fd, KEEPALIVE, 1);\n',
      after: '',
      breaks: 'keepalive is switched on',
    },
    {
      file: 'src/sys/socket/tcp-socket.ts',
      before: 'setSocketOption(fd, KEEPINTVL, intervalSeconds)',
      after: 'setSocketOption(fd, KEEPINTVL, idleSeconds)',
      breaks: 'probes have their interval',
    },
    {
      file: 'src/sys/socket/tcp-socket.ts',
      before: 'setSocketOption(fd, KEEPCNT, probes)',
      after: 'setSocketOption(fd, KEEPCNT, intervalSeconds)',
      breaks: 'probes have their number',
    },
    {
      file: 'src/sys/socket/tcp-socket.ts',
      before: 'info.getUint32(VALUE + TCPI_UNACKED, true) === 0 ? 0 :',
      after: '',
      breaks: 'an idle connection waits for no acknowledgement',
    },
    {
      file: 'src/sys/socket/tcp-socket.ts',
      before: 'getUint8(VALUE) === TCP_ESTABLISHED',
      after: 'getUint8(VALUE) !== 0',
      breaks: 'a connection that the peer has closed is not established',
    },
    {
      file: 'src/sys/socket/tcp-socket.ts',
      before: '  clear(): void {\n    this.#count = 0;',
      after: '  clear(): void {',
      breaks: 'cleared pieces are not sent again',
    },
    {
      file: 'src/sys/socket/tcp-socket.ts',
      before: '    this.#block.words[6] = this.#count;\n    for (;;) {\n      const received',
      after: '    for (;;) {\n      const received',
      breaks: 'a receive has the number of its segments',
    },
    {
      file: 'src/sys/socket/tcp-socket.ts',
      before: 'words[at + 1] = highOf(address);',
      after: '',
      breaks: 'a piece has an address of 64 bits',
    },
    {
      file: 'src/sys/socket/inet-address.ts',
      before: 'port > PORT_MAX',
      after: 'port > PORT_MAX + 1',
      breaks: 'a port has 16 bits',
    },
    {
      file: 'src/sys/socket/inet-address.ts',
      before: '  u8.fill(0, 0, SOCKADDR_BYTES_MAX);\n',
      after: '',
      breaks: 'no zone of an earlier address is left',
    },
    {
      file: 'src/sys/socket/inet-address.ts',
      before: 'view.setUint32(AT_SCOPE, scopeOf(zone, address), true)',
      after: 'view.setUint32(AT_SCOPE, scopeOf(zone, address), false)',
      breaks: 'a zone is in the order of the machine',
    },
    {
      file: 'src/sys/socket/inet-address.ts',
      before: 'if (isMapped(view)) return',
      after: 'if (isMapped(view) && port < 0) return',
      breaks: 'an IPv4 peer has its own address',
    },
    {
      file: 'src/sys/socket/inet-address.ts',
      before: 'high === 0 && middle === 0 && prefix === 0xffff',
      after: 'prefix === 0xffff',
      breaks: 'only the prefix of RFC 4291 is IPv4',
    },
    {
      file: 'src/sys/socket/inet-address.ts',
      before: 'family === AddressFamily.INET ? 4 : 16);\n}\n\n/** The string',
      after: 'family === AddressFamily.INET ? 16 : 16);\n}\n\n/** The text',
      breaks: 'an IPv4 address has 4 bytes',
    },
    {
      file: 'src/sys/socket/inet-address.ts',
      before:
        "if (index === 0) throw invalidParam('address', 'must have a network interface of this machine as its zone', address);",
      after: '',
      breaks: 'a zone is an interface',
    },
    {
      file: 'src/sys/socket/inet-address.ts',
      before: '  } finally {\n    block.free();',
      after: '  } finally {',
      breaks: 'the text of an address leaves no memory',
    },
  ],
};
