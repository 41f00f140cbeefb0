/** The texts of ucp_request_query, as versions of libucp write them. */

import { describe, expect, it } from 'vitest';
import { carrierIn } from './queries.ts';

describe('the text of ucp_request_query', () => {
  it.each([
    [
      'flags:0x4001 send length 8 ???() lane[0]:  1:posix/memory.0 md[1]          -> md[1]/posix/sysdev[255] amo#0 am am_bw#0host memory',
      'posix/memory',
    ],
    [
      'flags:0x44041 send length 2097152 ucp_rndv_progress_am_bcopy() comp:???()lane[1]: 12:rc_verbs/mlx5_0:1.0 md[3] -> md[3]/ib/sysdev[2] am host memory',
      'rc_verbs/mlx5_0:1',
    ],
    ['flags:0x1 send length 8 ???() lane[0]:  1:tcp/eth0.100.1 md[1] -> md[1]/tcp/sysdev[255] am', 'tcp/eth0.100'],
    ['flags:0x5 tag_send() from host memory length 8 eager short posix/memory -164.7 MB/s -0.05 us', 'posix/memory'],
    [
      'flags:0x85 rndv_send() from host memory length 2097152 zero-copy fenced write to remote 52% on tcp/lo and 48% on tcp/eth0 23.1 MB/s 86473.55 us',
      'tcp/lo+eth0',
    ],
    [
      'flags:0x85 put(fast-completion) from gaudi/GAUDI0 length 64 zero-copy rc_mlx5/mlx5_0:1/path0 and sysv/memory 9.0 MB/s',
      'rc_mlx5+sysv/mlx5_0:1+memory',
    ],
  ])('%s names %s', (text, name) => {
    const carrier = carrierIn(text);
    expect(`${carrier?.transport}/${carrier?.device}`).toBe(name);
  });

  it.each([
    'flags:0x1 <no debug info>',
    'flags:0x20001 recv length 8 host memory',
    'flags:0x44001 send length 2097152 ucp_proto_progress_tag_rndv_rts() lane[0]:  3:sysv/memory.0 md[2] -> md[2]/sysv/sysdev[255] amhost memory',
    'flags:0x5 tag_send() from cuda/GPU0 length 8 stub 1.0 MB/s 0.05 us',
    '',
  ])('%s names none', (text) => {
    expect(carrierIn(text)).toBeUndefined();
  });
});
