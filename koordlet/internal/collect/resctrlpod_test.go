// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"fmt"
	"testing"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// TestResctrlOfPods: a pod's counters are those of its monitoring group, summed over the caches; a cache that does not tell leaves no sum,
// and a group in another class begins anew. Other tools' groups, and those of pods that nobody follows, are not read, and nothing is kept
// of a pod that has gone.
func TestResctrlOfPods(t *testing.T) {
	t.Parallel()
	base := newRig(t, "6.12-v2", node.CgroupV2, nil)
	count := counters(t, base.record)
	r := newRigOn(t, base, nil)
	whom := targets(node.CgroupV2)
	r.Follow(whom)
	be, pod := "BE/mon_groups/"+beUID, "pod/"+beUID
	of := func() (out []string) {
		for _, s := range r.got {
			if s.Subject.Kind == sample.Pod && (s.Metric == sample.LLCOccupancy || s.Metric == sample.MemoryBandwidthTotal || s.Metric == sample.MemoryBandwidthLocal) {
				out = append(out, fmt.Sprintf("%s %s %.6g", s.Subject, s.Metric, s.Value))
			}
		}
		return out
	}
	next := func(what string, want ...string) {
		t.Helper()
		r.now += 2 * unit.Second
		r.scan(t)
		expect(t, what, of(), want...)
	}
	count("BE/mon_groups/tool/", 0, 1, "1", "1")
	count("BE/mon_groups/uid-of-nobody/", 0, 1, "1", "1")
	next("no group of a pod")
	count(be+"/", 0, 100, "1000", "0")
	count(be+"/", 1, 200, "5000", "0")
	next("first", pod+" llc 300")
	count(be+"/", 0, 150, "3000", "200")
	count(be+"/", 1, 200, "6000", "Unavailable")
	next("one cache does not tell", pod+" llc 350", pod+" mb_total 1500")
	base.record.Remove(t, "sys/fs/resctrl/"+be)
	count("LS/mon_groups/"+beUID+"/", 0, 10, "10", "10")
	next("its class is another", pod+" llc 10")
	count("LS/mon_groups/"+beUID+"/", 0, 20, "2010", "1010")
	next("and counts there", pod+" llc 20", pod+" mb_total 1000", pod+" mb_local 500")
	for i := range whom.Pods {
		if whom.Pods[i].QoS == protocol.QoSBE {
			whom.Pods = append(whom.Pods[:i:i], whom.Pods[i+1:]...)
			break
		}
	}
	r.Follow(whom)
	next("has gone")
	for _, run := range r.running {
		if c, ok := run.collector.(*resctrls); ok && (len(c.of.m) > 0 || len(c.within) != len(whom.Pods)) {
			t.Errorf("kept of a pod that has gone: %v, %v", c.of.m, c.within)
		}
	}
}
