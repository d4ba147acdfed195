// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command demo shows what koord-rt does: an LSR, an LS and a BE pod on a private containerd, first without koord-nri,
// then with it, and what the kernel holds each time; then koordlet beside koord-nri while load comes to an LS pod and goes,
// with what both pods used and what the best-effort class was allowed, twice a second, as the kernel tells it.
//
// `demo cluster` shows the closed loop of a whole cluster: a real etcd, kube-apiserver, kubelet, kube-scheduler and
// kube-controller-manager with koord-manager, koordlet and koord-nri, from slo-controller-config to the kernel, from a Deployment to the
// limits of its container, and from load on an LS pod to less batch-cpu and back.
//
// Input is this machine: root, Linux, the binaries in bin/ (make build) and the lab's parts, which it builds when they
// are missing. Output is text on standard output; nothing stays behind. `make demo` and `make demo-cluster` run it from the
// repository's root.
package main
