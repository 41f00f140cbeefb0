/**
 * Runs the checks of RDMA on a real stack: rdma_rxe (soft RoCE) in a virtual machine without acceleration, made from Debian packages: `npm run test:rdma`. Does not
 * build. Without the programs or the packages it prints what is missing and ends well. The files of this machine are those of the guest, read-only.
 */

import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { clientServerBuild } from '../test/fixtures/processes/client-server-build.ts';

const ROOT = join(import.meta.dirname, '../..');
const PROGRAM = join(ROOT, 'dist/programs/rdma-guest-program.js');
/** Runs the contract suites in the guest. */
const SUITES = join(ROOT, 'dist/test/rdma/guest-suites.js');
/** Programs, and the Debian packages that bring them. */
const PROGRAMS: Readonly<Record<string, string>> = {
  'qemu-system-x86_64': 'qemu-system-x86',
  busybox: 'busybox-static',
  cpio: 'cpio',
  depmod: 'kmod',
  xz: 'xz-utils',
  rdma: 'iproute2',
  ibv_devices: 'ibverbs-utils ibverbs-providers',
  'apt-get': 'apt',
};
/** Modules that the guest loads, with what they need. */
const MODULES = ['virtio_pci', '9pnet_virtio', '9p', 'veth', 'crc32_generic', 'rdma_rxe', 'ib_uverbs', 'rdma_ucm'];
const KERNELS = ['linux-image-6.12-amd64', 'linux-image-amd64'];
const EXAMPLE = 'ucp_client_server';
const GUEST_MS = 900_000;
/** The last lines of what runs in the guest, if all has passed. */
const PASSED = ['all checks passed', 'all suites passed'];

/** Runs before the files of this machine are there. The package may be in /tmp, where the guest has its own folder. */
const INIT = `#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod /modules/$module; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144 host /host
mkdir /package; mount -o bind "/host${ROOT}" /package
mount -t tmpfs tmp /host/tmp; mkdir -p "/host${ROOT}"; mount -o bind /package "/host${ROOT}"
mount -t proc proc /host/proc; mount -t sysfs sys /host/sys; mount -t devtmpfs dev /host/dev
mkdir -p /host/dev/shm; mount -t tmpfs shm /host/dev/shm; mount -t tmpfs run /host/run
cp /guest /host/tmp/guest; cp /ucp_client_server /host/tmp/ 2>/dev/null
chroot /host /bin/sh /tmp/guest
poweroff -f
`;

/** Two devices on both ends of a cable. */
const GUEST = `export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
ip link set lo up
ip link add veth0 type veth peer name veth1
for i in 0 1; do
  ip addr add 10.7.0.$((i + 1))/24 dev veth$i; ip link set veth$i up
done
for i in 0 1; do rdma link add rxe$i type rxe netdev veth$i; done
ulimit -l unlimited
"${process.execPath}" "${PROGRAM}" 2>&1
"${process.execPath}" "${SUITES}" 2>&1
`;

process.exitCode = await main();

async function main(): Promise<number> {
  const missing = Object.entries(PROGRAMS).filter(([program]) => !run('which', [program]).isGood);
  if (missing.length > 0) {
    const packages = missing.map(([, name]) => name).join(' ');
    console.log(`skipped: needs the Debian packages ${packages}`);
    return 0;
  }
  if (!existsSync(PROGRAM)) throw new Error(`${PROGRAM} is not there: npm run build`);
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-rdma-'));
  try {
    const kernel = fetchKernel(folder);
    if (kernel === undefined) {
      console.log(`skipped: none of the packages ${KERNELS.join(', ')} can be fetched`);
      return 0;
    }
    compileExample(folder);
    makeInitrd(folder, kernel);
    return runGuest(folder, kernel);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Unpacks a kernel into the folder; returns its version. */
function fetchKernel(folder: string): string | undefined {
  for (const meta of KERNELS) {
    const name = /Depends: (linux-image-\S+)/.exec(run('apt-cache', ['depends', meta]).out)?.[1];
    if (name === undefined || !run('apt-get', ['download', name], folder).isGood) continue;
    const file = readdirSync(folder).find((each) => each.endsWith('.deb'))!;
    check(run('dpkg', ['-x', file, '.'], folder), 'dpkg');
    return basename(name).replace('linux-image-', '');
  }
  return undefined;
}

/** Compiles a C peer of the engine over libucp; without compiler or headers there is none, and the guest says so. */
function compileExample(folder: string): void {
  run('gcc', clientServerBuild(ROOT, join(folder, EXAMPLE)));
}

function makeInitrd(folder: string, kernel: string): void {
  check(run('depmod', ['-b', folder, kernel]), 'depmod');
  const modules = join(folder, 'lib/modules', kernel);
  const needs = new Map(
    readFileSync(join(modules, 'modules.dep'), 'utf8')
      .trim()
      .split('\n')
      .map((line) => line.split(':'))
      .map(([path = '', needed = '']) => [nameOf(path), [path, ...needed.split(' ').filter(Boolean)]] as const),
  );
  // The paths of a module: itself, and then what it needs, the nearest first.
  const order = [...new Set(MODULES.flatMap((name) => [...(needs.get(name) ?? [])].reverse()))];
  const root = join(folder, 'root');
  for (const each of ['bin', 'proc', 'sys', 'dev', 'host', 'modules']) mkdirSync(join(root, each), { recursive: true });
  copyFileSync(run('which', ['busybox']).out.trim(), join(root, 'bin/busybox'));
  for (const path of order) {
    const target = join(root, 'modules', `${nameOf(path)}.ko`);
    const source = join(modules, path);
    check(
      run('sh', ['-c', source.endsWith('.xz') ? `xz -dc "${source}" > "${target}"` : `cp "${source}" "${target}"`]),
      path,
    );
  }
  writeFileSync(join(root, 'modules/order'), order.map((path) => `${nameOf(path)}.ko`).join('\n'));
  if (existsSync(join(folder, EXAMPLE))) copyFileSync(join(folder, EXAMPLE), join(root, EXAMPLE));
  writeFileSync(join(root, 'init'), INIT);
  writeFileSync(join(root, 'guest'), GUEST);
  chmodSync(join(root, 'init'), 0o755);
  check(run('sh', ['-c', 'find . | cpio -o -H newc | gzip -1 > ../initrd.gz'], root), 'cpio');
}

function runGuest(folder: string, kernel: string): number {
  const share = 'local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap';
  const { stdout } = spawnSync(
    'qemu-system-x86_64',
    // One thread for both processors: kernels that change their own code have crashed with more.
    [
      ...['-accel', 'tcg,thread=single', '-cpu', 'max', '-smp', '2', '-m', '3072', '-nographic', '-no-reboot'],
      ...['-kernel', join(folder, 'boot', `vmlinuz-${kernel}`), '-initrd', join(folder, 'initrd.gz')],
      // Not what rdma_rxe says of operations that it refuses: that would come between the lines of the checks.
      ...['-append', 'console=ttyS0 quiet loglevel=2 panic=-1', '-virtfs', share],
    ],
    { encoding: 'utf8', timeout: GUEST_MS, stdio: ['ignore', 'pipe', 'inherit'] },
  );
  // The firmware leaves its last line without an end.
  const lines = stripVTControlCharacters(stdout)
    .replace(/^.*\.\.(?=(ok|FAILED) )/m, '')
    .split(/\r?\n/);
  const begin = lines.findIndex((line) => /^(ok|FAILED) /.test(line));
  console.log(`Linux ${kernel} in a virtual machine without acceleration`);
  console.log((begin < 0 ? lines.slice(-40) : lines.slice(begin)).join('\n'));
  return PASSED.every((line) => lines.includes(line)) ? 0 : 1;
}

function nameOf(path: string): string {
  return basename(path)
    .replace(/\.ko(\..*)?$/, '')
    .replaceAll('-', '_');
}

interface Run {
  readonly isGood: boolean;
  readonly out: string;
  readonly err: string;
}

function run(program: string, args: readonly string[], cwd = ROOT): Run {
  const { status, stdout, stderr } = spawnSync(program, args, { cwd, encoding: 'utf8' });
  return { isGood: status === 0, out: stdout ?? '', err: stderr ?? '' };
}

function check({ isGood, err }: Run, what: string): void {
  if (!isGood) throw new Error(`${what}: ${err}`);
}
