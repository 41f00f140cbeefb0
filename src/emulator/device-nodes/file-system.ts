/** The FUSE file system of a device tree: names, file attributes, contents. */

import { Errno } from '../../sys/index.ts';
import type { Attribute, DeviceTree, Folder, TreeNode } from './device-tree.ts';
import {
  ATTR,
  ATTR_OUT,
  DIRENT,
  ENTRY_OUT,
  FUSE_VERSION,
  type FuseChannel,
  FuseOp,
  INIT_IN,
  INIT_OUT,
  InitFlag,
  InitFlag2,
  LOOKUP_NAME,
  OPEN_IN,
  OPEN_OUT,
  OpenedFlag,
  OUT_HEADER,
  READ_IN,
  STATFS_OUT,
  WRITE_BYTES_MAX,
  WRITE_IN,
  WRITE_OUT,
} from './fuse-channel.ts';

const S_IFDIR = 0o040000;
const S_IFLNK = 0o120000;
const S_IFREG = 0o100000;
/** Access modes of open(2). */
const O_RDONLY = 0;
const O_WRONLY = 1;
const ACCESS_MODE = 3;
/** Types of directory entries: DT_DIR and others of dirent.h. A device node has that of a character device, although its file has another one. */
const ENTRY_TYPE: Readonly<Record<TreeNode['kind'], number>> = { folder: 4, link: 10, attribute: 8, device: 2 };
/** Size of a file in sysfs. */
const PAGE_BYTES = 4096;
/** Time for which the kernel may cache a name, in seconds: short, because cards can be unplugged. */
const VALID_SECONDS = 1;
const NAME_MAX = 255;
const BACKGROUND_MAX = 1024;
const READAHEAD_BYTES = 4096;
const decoder = new TextDecoder();
/** Decodes bytes that programs write to files: one character per byte. */
const latin1 = new TextDecoder('latin1');
const encoder = new TextEncoder();

export class TreeFileSystem {
  readonly #tree: DeviceTree;
  readonly #channel: FuseChannel;

  constructor(tree: DeviceTree, channel: FuseChannel) {
    this.#tree = tree;
    this.#channel = channel;
  }

  /** Handles the current request of the channel; returns false if it does not concern names or contents. */
  answer(): boolean {
    const channel = this.#channel;
    if (channel.opcode === FuseOp.INIT) {
      this.#init();
      return true;
    }
    // The kernel expects no reply to these.
    if (channel.opcode === FuseOp.FORGET || channel.opcode === FuseOp.BATCH_FORGET) return true;
    if (channel.opcode === FuseOp.STATFS) {
      this.#statfs();
      return true;
    }
    const node = this.#tree.find(channel.node);
    if (node === undefined) {
      channel.fail(Errno.ENOENT);
      return true;
    }
    return this.#answerAbout(node);
  }

  #answerAbout(node: TreeNode): boolean {
    const channel = this.#channel;
    switch (channel.opcode) {
      case FuseOp.LOOKUP:
        this.#lookup(node);
        return true;
      case FuseOp.GETATTR:
      // Truncating on open has no effect on device nodes and sysfs files.
      case FuseOp.SETATTR:
        writeAttributes(channel, ATTR_OUT.ATTR, node);
        channel.send(ATTR_OUT.END);
        return true;
      case FuseOp.READLINK:
        if (node.kind === 'link') this.#sendBytes(encoder.encode(node.target));
        else channel.fail(Errno.EINVAL);
        return true;
      case FuseOp.OPENDIR:
        channel.send(OPEN_OUT.END);
        return true;
      case FuseOp.READDIR:
        if (node.kind === 'folder') this.#readFolder(node);
        else channel.fail(Errno.ENOTDIR);
        return true;
      case FuseOp.RELEASEDIR:
        channel.fail(0);
        return true;
      default:
        return node.kind === 'device' ? false : this.#answerAboutText(node);
    }
  }

  #answerAboutText(node: TreeNode): boolean {
    const channel = this.#channel;
    if (node.kind !== 'attribute') channel.fail(Errno.ENOSYS);
    else if (channel.opcode === FuseOp.OPEN) this.#openText(node);
    else if (channel.opcode === FuseOp.READ) this.#readText(node);
    else if (channel.opcode === FuseOp.WRITE) this.#writeText(node);
    else if (channel.opcode === FuseOp.RELEASE) channel.fail(0);
    else channel.fail(channel.opcode === FuseOp.IOCTL ? Errno.ENOTTY : Errno.ENOSYS);
    return true;
  }

  /** Even the superuser cannot open an attribute for reading or writing that it does not support: kernfs_fop_open. */
  #openText({ read, write }: Attribute): void {
    const channel = this.#channel;
    const access = channel.view.getUint32(OPEN_IN.FLAGS, true) & ACCESS_MODE;
    if ((access !== O_WRONLY && read === undefined) || (access !== O_RDONLY && write === undefined)) {
      channel.fail(Errno.EACCES);
      return;
    }
    channel.answerView.setUint32(OPEN_OUT.FLAGS, OpenedFlag.DIRECT_IO | OpenedFlag.NOFLUSH, true);
    channel.send(OPEN_OUT.END);
  }

  #readText({ read }: Attribute): void {
    const channel = this.#channel;
    const found = read?.() ?? -Errno.EINVAL;
    if (typeof found === 'number') {
      channel.fail(-found);
      return;
    }
    const bytes = typeof found === 'string' ? encoder.encode(found) : found;
    const offset = Number(channel.view.getBigUint64(READ_IN.OFFSET, true));
    const size = channel.view.getUint32(READ_IN.SIZE, true);
    this.#sendBytes(bytes.subarray(offset, offset + size));
  }

  #writeText({ write }: Attribute): void {
    const channel = this.#channel;
    const size = Math.min(channel.view.getUint32(WRITE_IN.SIZE, true), channel.byteLength - WRITE_IN.DATA);
    const text = latin1.decode(channel.bytes.subarray(WRITE_IN.DATA, WRITE_IN.DATA + size));
    const result = write?.(text) ?? -Errno.EINVAL;
    if (result < 0) {
      channel.fail(-result);
      return;
    }
    channel.answerWords[WRITE_OUT.SIZE / 4] = Math.min(result, size);
    channel.send(WRITE_OUT.END);
  }

  #init(): void {
    const { view, answerView } = this.#channel;
    const flags = view.getUint32(INIT_IN.FLAGS, true);
    const minor = Math.min(view.getUint32(INIT_IN.MINOR, true), FUSE_VERSION.MINOR);
    const wanted = InitFlag.ASYNC_READ | InitFlag.BIG_WRITES | InitFlag.PARALLEL_DIROPS | InitFlag.EXT;
    answerView.setUint32(INIT_OUT.MAJOR, FUSE_VERSION.MAJOR, true);
    answerView.setUint32(INIT_OUT.MINOR, minor, true);
    answerView.setUint32(INIT_OUT.READAHEAD, READAHEAD_BYTES, true);
    answerView.setUint32(INIT_OUT.FLAGS, (flags & wanted) >>> 0, true);
    answerView.setUint16(INIT_OUT.MAX_BACKGROUND, BACKGROUND_MAX, true);
    answerView.setUint16(INIT_OUT.CONGESTION, BACKGROUND_MAX, true);
    answerView.setUint32(INIT_OUT.MAX_WRITE, WRITE_BYTES_MAX, true);
    answerView.setUint32(INIT_OUT.TIME_GRANULARITY, 1, true);
    answerView.setUint32(
      INIT_OUT.FLAGS2,
      view.getUint32(INIT_IN.FLAGS2, true) & (InitFlag2.PASSTHROUGH | InitFlag2.RESEND),
      true,
    );
    answerView.setUint32(INIT_OUT.MAX_STACK_DEPTH, 1, true);
    this.#channel.send(INIT_OUT.END);
  }

  #statfs(): void {
    const { answerView } = this.#channel;
    answerView.setUint32(STATFS_OUT.BLOCK_SIZE, PAGE_BYTES, true);
    answerView.setUint32(STATFS_OUT.NAME_MAX, NAME_MAX, true);
    this.#channel.send(STATFS_OUT.END);
  }

  #lookup(folder: TreeNode): void {
    const channel = this.#channel;
    const name = decoder.decode(channel.bytes.subarray(LOOKUP_NAME, channel.byteLength - 1));
    const found = folder.kind === 'folder' ? this.#tree.lookup(folder, name) : undefined;
    if (found === undefined) {
      channel.fail(Errno.ENOENT);
      return;
    }
    channel.answerWords[ENTRY_OUT.NODE / 4] = found.ino;
    channel.answerWords[ENTRY_OUT.ENTRY_VALID / 4] = VALID_SECONDS;
    writeAttributes(channel, ENTRY_OUT.ATTR, found);
    channel.send(ENTRY_OUT.END);
  }

  /** Writes as many entries from the offset of the request as fit. */
  #readFolder(folder: Folder): void {
    const channel = this.#channel;
    const { answerView, answerBytes } = channel;
    const first = Number(channel.view.getBigUint64(READ_IN.OFFSET, true));
    const room = Math.min(channel.view.getUint32(READ_IN.SIZE, true), channel.payloadMax);
    const children = [...folder.children].filter(([name]) => this.#tree.lookup(folder, name) !== undefined);
    const entries: readonly (readonly [string, TreeNode])[] = [['.', folder], ['..', folder], ...children];
    let at: number = OUT_HEADER.BYTES;
    for (let index = first; index < entries.length; index++) {
      const [name, node] = entries[index]!;
      const bytes = encoder.encode(name);
      const length = Math.ceil((DIRENT.NAME + bytes.byteLength) / 8) * 8;
      if (at + length - OUT_HEADER.BYTES > room) break;
      answerView.setBigUint64(at + DIRENT.INO, BigInt(node.ino), true);
      answerView.setBigUint64(at + DIRENT.OFFSET, BigInt(index + 1), true);
      answerView.setUint32(at + DIRENT.NAME_LENGTH, bytes.byteLength, true);
      answerView.setUint32(at + DIRENT.TYPE, ENTRY_TYPE[node.kind], true);
      answerBytes.set(bytes, at + DIRENT.NAME);
      at += length;
    }
    channel.send(at);
  }

  #sendBytes(bytes: Uint8Array): void {
    const channel = this.#channel;
    const piece = bytes.subarray(0, channel.payloadMax);
    channel.answerBytes.set(piece, OUT_HEADER.BYTES);
    channel.send(OUT_HEADER.BYTES + piece.byteLength);
  }
}

/** Writes struct fuse_attr of a file; its times are 0. */
function writeAttributes({ answerView }: FuseChannel, at: number, node: TreeNode): void {
  answerView.setBigUint64(at + ATTR.INO, BigInt(node.ino), true);
  answerView.setBigUint64(at + ATTR.SIZE, BigInt(sizeOf(node)), true);
  answerView.setUint32(at + ATTR.MODE, modeOf(node), true);
  answerView.setUint32(at + ATTR.LINKS, 1, true);
  answerView.setUint32(at + ATTR.BLOCK_SIZE, PAGE_BYTES, true);
}

function sizeOf(node: TreeNode): number {
  if (node.kind === 'attribute') return PAGE_BYTES;
  return node.kind === 'link' ? encoder.encode(node.target).byteLength : 0;
}

function modeOf(node: TreeNode): number {
  if (node.kind === 'attribute') return S_IFREG | node.mode;
  if (node.kind === 'device') return S_IFREG | 0o666;
  return node.kind === 'link' ? S_IFLNK | 0o777 : S_IFDIR | node.mode;
}
