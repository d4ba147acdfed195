// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package e2e runs koord-nri beside a real containerd, creates pods as the kubelet does, and reads the result from the
// kernel. It has no code outside its tests, which need root and the build tag lab:
//
//	Host…    on this machine (lane 1)
//	VM…      boots virtual machines that run the Guest… tests inside (lane 3)
//	Compat…  other versions of containerd and of NRI, on this machine
//	Guest…   only inside a virtual machine
package e2e
