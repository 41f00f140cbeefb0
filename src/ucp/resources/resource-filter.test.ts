import { describe, expect, it } from 'vitest';
import { loadConfig } from '../../ucs/config/config.ts';
import { DeviceType } from '../../uct/api/iface.ts';
import { UCP_CONFIG_TABLE } from './config.ts';
import { ResourceFilter } from './resource-filter.ts';

const TRANSPORTS = [
  { name: 'self', aliases: [] },
  { name: 'posix', aliases: ['shm', 'sm', 'mm'] },
  { name: 'cma', aliases: ['shm', 'sm'] },
  { name: 'gaudi_cpy', aliases: ['gaudi', 'gaudi_copy'] },
  { name: 'gaudi_ipc', aliases: ['gaudi'] },
];

function filterOf(overrides: Readonly<Record<string, string>>): ResourceFilter {
  return new ResourceFilter(loadConfig([UCP_CONFIG_TABLE], { overrides }).get(UCP_CONFIG_TABLE));
}

describe('UCX_TLS', () => {
  it.each([
    ['all', 'self posix cma gaudi_cpy gaudi_ipc'],
    ['self', 'self'],
    ['shm', 'posix cma'],
    ['mm,self', 'self posix'],
    ['gaudi', 'gaudi_cpy gaudi_ipc'],
    ['gaudi_copy', 'gaudi_cpy'],
    ['gaudi*', 'gaudi_cpy gaudi_ipc'],
    ['^gaudi', 'self posix cma'],
    ['^gaudi_ipc,mm', 'self cma gaudi_cpy'],
    [String.raw`\shm,\cma`, 'cma'],
    [String.raw`^\shm`, 'self posix cma gaudi_cpy gaudi_ipc'],
    ['', ''],
  ])('%j admits %s', (TLS, expected) => {
    const filter = filterOf({ TLS });
    const admitted = TRANSPORTS.filter((transport) => filter.admitsTransport(transport)).map(({ name }) => name);
    expect(admitted.join(' ')).toBe(expected);
    const refused = TRANSPORTS.map(({ name }) => name).filter((name) => !admitted.includes(name));
    const reason = TLS === '' ? 'excluded by UCX_TLS, which is empty' : 'excluded by UCX_TLS';
    expect(filter.rejections).toEqual(refused.map((name) => ({ name, reason })));
  });

  it('warns about names that no transport has, with the nearest', () => {
    const filter = filterOf({ TLS: String.raw`gaudi_cpyy,shm,rc,\mm` });
    for (const transport of TRANSPORTS) filter.admitsTransport(transport);
    const choice = 'cma, gaudi, gaudi_copy, gaudi_cpy, gaudi_ipc, mm, posix, self, shm, sm';
    expect(filter.unavailable()).toEqual([
      `transport 'gaudi_cpyy' is not available (maybe: gaudi_cpy?), please use one or more of: ${choice}`,
      `transport 'rc' is not available, please use one or more of: ${choice}; 'rc' needs an RDMA device: set UCX_GAUDI_EMULATOR_NICS=1 for an emulated one, or UCX_IB_DRIVER to use those of this machine`,
      String.raw`transport '\mm' is not available (maybe: mm?), please use one or more of: ` + choice,
    ]);
  });

  it.each(['rc_mlx5', 'tcp', 'rc_verbs'])(
    'suggests no other spelling of %s, which this machine does not have',
    (TLS) => {
      const filter = filterOf({ TLS });
      for (const transport of TRANSPORTS) filter.admitsTransport(transport);
      const [warning] = filter.unavailable();
      expect(warning).toContain(`transport '${TLS}' is not available, please use`);
    },
  );

  it('knows whether transports were asked for by name', () => {
    expect([filterOf({ TLS: 'self' }), filterOf({ TLS: '^self' }), filterOf({})].map((f) => f.namesTransports)).toEqual(
      [true, false, false],
    );
  });
});

describe('UCX_*_DEVICES', () => {
  const CARDS = ['gaudi0', 'gaudi1', 'gaudi2', 'gaudi10'];

  it.each([
    ['all', 'gaudi0 gaudi1 gaudi2 gaudi10'],
    ['gaudi1', 'gaudi1'],
    ['gaudi[1-2]', 'gaudi1 gaudi2'],
    ['gaudi[2-10],gaudi0', 'gaudi0 gaudi2 gaudi10'],
    ['^gaudi[0-1]', 'gaudi2 gaudi10'],
    ['gaudi1*', 'gaudi1 gaudi10'],
    ['', ''],
  ])('ACC %j admits %s', (ACC_DEVICES, expected) => {
    const filter = filterOf({ ACC_DEVICES });
    const admitted = CARDS.filter((card) => filter.admitsDevice(DeviceType.ACC, card));
    expect(admitted.join(' ')).toBe(expected);
    const refused = CARDS.filter((card) => !admitted.includes(card));
    expect(filter.rejections).toEqual(
      refused.map((name) => ({
        name,
        reason: `excluded by UCX_ACC_DEVICES${ACC_DEVICES === '' ? ', which is empty' : ''}`,
      })),
    );
  });

  it.each([
    ['NET_DEVICES', DeviceType.NET],
    ['SHM_DEVICES', DeviceType.SHM],
    ['ACC_DEVICES', DeviceType.ACC],
    ['SELF_DEVICES', DeviceType.SELF],
  ])('%s is the list for its type alone', (field, type) => {
    const filter = filterOf({ [field]: '^memory' });
    for (const each of Object.values(DeviceType)) expect(filter.admitsDevice(each, 'memory')).toBe(each !== type);
    // A device is rejected once, for all transports.
    filter.admitsDevice(type, 'memory');
    expect(filter.rejections).toEqual([{ name: 'memory', reason: `excluded by UCX_${field}` }]);
  });

  it('warns about devices that are not there', () => {
    const filter = filterOf({ ACC_DEVICES: 'gaudi1,gaudi[5-7],gaud2', NET_DEVICES: 'mlx5_0:1', SHM_DEVICES: '^x' });
    filter.admitsDevice(DeviceType.SHM, 'memory');
    for (const card of CARDS) filter.admitsDevice(DeviceType.ACC, card);
    expect(filter.unavailable()).toEqual([
      "network device 'mlx5_0:1' is not available, there are none",
      "intra-node device 'x' is not available, please use one or more of: memory",
      "accelerator device 'gaudi[5-7]' is not available, please use one or more of: gaudi0, gaudi1, gaudi10, gaudi2",
      "accelerator device 'gaud2' is not available (maybe: gaudi2?), please use one or more of: gaudi0, gaudi1, gaudi10, gaudi2",
    ]);
  });

  it.each([
    ['^cuda,rc', undefined],
    ['^tcpp', "transport 'tcpp' is not available, "],
    ['self,cuda_cpy', "transport 'cuda_cpy' is not available (maybe: cuda_copy?), "],
    ['self,gaudi_cpx', "transport 'gaudi_cpx' is not available (maybe: gaudi_cpy?), "],
  ])('%s warns only about names that UCX does not have either, or of which something is wanted', (TLS, warning) => {
    const filter = filterOf({ TLS });
    for (const transport of TRANSPORTS) filter.admitsTransport(transport);
    expect(filter.unavailable()).toEqual(warning === undefined ? [] : [expect.stringContaining(warning)]);
  });

  it('says nothing about devices of transports that are not used', () => {
    const filter = filterOf({ TLS: 'self', ACC_DEVICES: 'gaudi0' });
    for (const transport of TRANSPORTS) filter.admitsTransport(transport);
    expect(filter.unavailable()).toEqual([]);
  });
});

describe('a name in the list of another variable', () => {
  it.each([
    ['gaudi0', "; 'gaudi0' is a device for UCX_ACC_DEVICES"],
    ['gaudi_copy', "; 'gaudi_copy' is a transport: put it in UCX_TLS, and its devices in UCX_ACC_DEVICES"],
  ])('UCX_NET_DEVICES=%s', (NET_DEVICES, hint) => {
    const filter = filterOf({ NET_DEVICES });
    filter.admitsDevice(DeviceType.NET, 'eth0');
    const gaudi = { transport: 'gaudi_cpy', aliases: ['gaudi', 'gaudi_copy'], device: 'gaudi0' };
    filter.exclusionOf({ ...gaudi, deviceType: DeviceType.ACC } as never);
    expect(filter.unavailable()).toEqual([expect.stringContaining(hint)]);
  });
});
