// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pod_test

import (
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
	"github.com/koord-rt/koord-rt/policy/pod"
	pt "github.com/koord-rt/koord-rt/policy/policytest"
)

// A BE pod's annotation lowers the block IO of its class and lifts none of it, by whichever name the disk goes; a latency
// target ends at the node's smallest. The reason names the cap.
func TestBlkIOCaps(t *testing.T) {
	t.Parallel()
	low, high, weight, heavy, tiny, slow := int64(1000), int64(8<<20), int64(50), int64(90), int64(1), int64(8000)
	const yaml = "resourceQOSStrategy:\n  beClass: {blkioQOS: {enable: true, blocks: [{name: sda, type: device, ioCfg: {readBPS: 1048576, ioWeightPercent: 60}}]}}\n" +
		"  lsClass: {blkioQOS: {enable: true, blocks: [{name: sda, type: device, ioCfg: {readBPS: 1048576}}]}}\n"
	const within, target = "held within class BE's (limits.beyondClass)", "capped by the node's ioLatencyMin"
	for name, tc := range map[string]struct {
		class  protocol.QoS
		disk   string
		io     strategy.IOCfg
		change func(*node.Limits)
		want   want
		why    string
	}{
		"lower":                 {class: protocol.QoSBE, disk: "sda", io: strategy.IOCfg{ReadBPS: &low, IOWeightPercent: &weight}, want: want{"io.read_bps[8:0]": "1000", "io.weight[8:0]": "50"}},
		"higher":                {class: protocol.QoSBE, disk: "sda", io: strategy.IOCfg{ReadBPS: &high, IOWeightPercent: &heavy}, want: want{"io.read_bps[8:0]": "1048576", "io.weight[8:0]": "60"}, why: within},
		"by its other name":     {class: protocol.QoSBE, disk: "/dev/sda", io: strategy.IOCfg{ReadBPS: &high}, want: want{"io.read_bps[8:0]": "1048576", "io.weight[8:0]": "60"}, why: within},
		"nothing of it":         {class: protocol.QoSBE, disk: "sda", io: strategy.IOCfg{WriteBPS: &low}, want: want{"io.read_bps[8:0]": "1048576", "io.write_bps[8:0]": "1000", "io.weight[8:0]": "60"}, why: within},
		"another disk":          {class: protocol.QoSBE, disk: "nvme0n1", io: strategy.IOCfg{ReadBPS: &high}, want: want{"io.read_bps[8:0]": "1048576", "io.weight[8:0]": "60", "io.read_bps[259:0]": "8388608"}},
		"the node allows it":    {class: protocol.QoSBE, disk: "sda", io: strategy.IOCfg{ReadBPS: &high}, change: func(l *node.Limits) { l.BeyondClass = true }, want: want{"io.read_bps[8:0]": "8388608"}},
		"LS is its own":         {class: protocol.QoSLS, disk: "sda", io: strategy.IOCfg{ReadBPS: &high}, want: want{"io.read_bps[8:0]": "8388608"}},
		"a target nobody meets": {class: protocol.QoSLS, disk: "nvme0n1", io: strategy.IOCfg{ReadLatency: &tiny, WriteLatency: &slow}, want: want{"io.read_bps[8:0]": "1048576", "io.latency[259:0]": "3000"}, why: target},
		"a target to meet":      {class: protocol.QoSLS, disk: "nvme0n1", io: strategy.IOCfg{ReadLatency: &slow}, want: want{"io.read_bps[8:0]": "1048576", "io.latency[259:0]": "8000"}},
	} {
		v, p := pt.YAML(t, pt.View(), yaml), pt.Pod(tc.class)
		v.Limits.IOLatencyMin = 3000
		if tc.change != nil {
			tc.change(&v.Limits)
		}
		p.Ask.BlkIO = []strategy.Block{{Name: tc.disk, Type: strategy.BlockDevice, IOCfg: tc.io}}
		pl, problems := pod.Decide(v, p, pod.Sums{})
		var io plan.Plan
		why := ""
		for i := range pl {
			if pl[i].Owner == protocol.FeatureBlkIO {
				io, why = append(io, pl[i]), why+pl[i].Reason
			}
		}
		pt.Want(t, io, tc.want, true)
		if len(problems) > 0 || tc.why == "" && (strings.Contains(why, within) || strings.Contains(why, target)) || !strings.Contains(why, tc.why) {
			t.Errorf("%s: reasons %q, want %q; problems %v", name, why, tc.why, problems)
		}
		if p.Ask.BlkIO[0].IOCfg != tc.io {
			t.Errorf("%s: the pod's own wish was changed", name)
		}
	}
}

// What pods protect together ends at the node's share, and one container's part of it too: without that, one annotation with a
// request beyond the node would take all memory from the reach of reclaim.
func TestProtectionEndsAtTheNodesShare(t *testing.T) {
	t.Parallel()
	const root, besteffort, most = "/kubepods", "/kubepods/besteffort", "103079215104" // 80 % of 120 GiB
	v := pt.YAML(t, pt.View(), "resourceQOSStrategy: {beClass: {memoryQOS: {enable: true, minLimitPercent: 50, lowLimitPercent: 100}}}")
	v.Limits.MemoryNodePercent = 80
	p := pt.Pod(protocol.QoSBE)
	p.Ask.Extended, p.Ask.HasExtended = map[string]protocol.ExtendedContainer{"app": pt.Batch(500, 1<<50)}, true
	pl, _ := pod.Decide(v, p, pod.Sums{})
	pt.Want(t, pl, want{"memory.min": "51539607552", "memory.low": most}, false)
	for _, s := range pod.Ancestors(v, []pod.Protection{
		{QoSCgroup: besteffort, KubepodsCgroup: root, Min: 90 * pt.GiB, Low: 90 * pt.GiB},
		{QoSCgroup: root, KubepodsCgroup: root, Min: 20 * pt.GiB, Low: 20 * pt.GiB},
	}) {
		value, why := "96636764160", "sum of the pods below"
		if s.Target.Cgroup == root {
			value, why = most, "sum of the pods below, capped by the node's memoryNodePercentMax"
		}
		if s.Value.String() != value || s.Reason != why {
			t.Errorf("%s, want %s (%s)", &s, value, why)
		}
	}
}
