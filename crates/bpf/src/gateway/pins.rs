//! Gateways that outlive their process, as files in bpffs: /sys/fs/bpf/ekiden/gateway-NAME.
