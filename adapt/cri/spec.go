// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cri

import "github.com/koord-rt/koord-rt/model/workload"

// specResources are the resources of an OCI runtime spec (config-linux.md, "Control groups"), as far as the kubelet asks
// for any: runtimes put there what the last request had.
type specResources struct {
	CPU struct {
		Shares int64  `json:"shares"`
		Quota  int64  `json:"quota"`
		Period int64  `json:"period"`
		CPUs   string `json:"cpus"`
		Mems   string `json:"mems"`
	} `json:"cpu"`
	Memory struct {
		Limit int64 `json:"limit"`
	} `json:"memory"`
	Unified map[string]string `json:"unified"`
}

func (r *specResources) base() workload.Resources {
	return workload.Resources{
		Shares: opt(r.CPU.Shares), Quota: opt(r.CPU.Quota), Period: opt(r.CPU.Period), CPUs: r.CPU.CPUs, Mems: r.CPU.Mems,
		MemoryLimit: opt(r.Memory.Limit), Unified: r.Unified,
	}
}
