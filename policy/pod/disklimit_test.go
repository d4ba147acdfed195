// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/model/workload"
	"github.com/koord-rt/koord-rt/policy/pod"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

// TestDiskLimit: a BE pod that disturbs others at the disks is held at each of them, the lower limit stands, and nobody else is held.
func TestDiskLimit(t *testing.T) {
	t.Parallel()
	n := int64(1000)
	for name, tc := range map[string]struct {
		class  protocol.QoS
		ask    []strategy.Block
		change func(*node.View, *workload.Pod)
		want   want
	}{
		"each disk once, and what is no disk not at all": {protocol.QoSBE, nil, func(v *node.View, _ *workload.Pod) {
			v.Kernel.Disks = map[string]string{
				"sda": "8:0", "/dev/sda": "8:0", "sda1": "8:0", "nvme0n1": "259:0", "loop0": "7:0", "/dev/dm-0": "253:0", "mapper/vg-lv": "253:0", "zram0": "252:0",
			}
		}, want{"io.read_bps[8:0]": "2000", "io.write_bps[8:0]": "3000", "io.read_bps[259:0]": "2000", "io.write_bps[259:0]": "3000"}},
		"its own is lower": {protocol.QoSBE, []strategy.Block{{Name: "sda", Type: "device", IOCfg: strategy.IOCfg{ReadBPS: &n}}}, nil,
			want{"io.read_bps[8:0]": "1000", "io.write_bps[8:0]": "3000"}},
		"its own is higher": {protocol.QoSBE, []strategy.Block{{Name: "sda", Type: "device", IOCfg: strategy.IOCfg{ReadBPS: &n}}},
			func(v *node.View, p *workload.Pod) {
				v.Dynamic.DiskLimits[p.UID] = node.DiskLimit{Read: 400, Write: 500}
			},
			want{"io.read_bps[8:0]": "400", "io.write_bps[8:0]": "500"}},
		"LS":                                 {protocol.QoSLS, nil, nil, want{}},
		"LSR":                                {protocol.QoSLSR, nil, nil, want{}},
		"SYSTEM":                             {protocol.QoSSystem, nil, nil, want{}},
		"another":                            {protocol.QoSBE, nil, func(_ *node.View, p *workload.Pod) { p.UID = "another" }, want{}},
		"cgroup v1 has it at the containers": {protocol.QoSBE, nil, func(v *node.View, _ *workload.Pod) { v.Kernel.Cgroup = node.CgroupV1 }, want{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, p := pt.View(), pt.Pod(tc.class)
			v.Dynamic.DiskLimits = map[string]node.DiskLimit{p.UID: {Read: 2000, Write: 3000, Reason: "it disturbs others"}}
			v.Kernel.Disks = map[string]string{"sda": "8:0"}
			if tc.change != nil {
				tc.change(v, p)
			}
			p.Ask.BlkIO = tc.ask
			pl, _ := pod.Decide(v, p, pod.Sums{})
			var io plan.Plan
			for i := range pl {
				if pl[i].Owner == protocol.FeatureBlkIO {
					io = append(io, pl[i])
				}
			}
			pt.Want(t, io, tc.want, true)
		})
	}
}
