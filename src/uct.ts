/** The package entry `gaudi-ucx/uct`: memory domains and transports without the protocol layer above them. Re-exports only. */

export {
  cmaComponent,
  gaudiCopyComponent,
  gaudiIpcComponent,
  ibComponent,
  type MdOptions,
  type OwnComponent,
  posixComponent,
  selfComponent,
  tcpComponent,
} from './assembly/uct-components.ts';
export * from './uct/index.ts';
