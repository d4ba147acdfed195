// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package collect

import (
	"fmt"
	"testing"

	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/sample"
	"github.com/koord-rt/koord-rt/model/unit"
)

// TestDiskThatComes: what a disk has counted by the time it is listed is no traffic of the node, nor of a pod that has used it since it was attached.
// Requests and latencies begin anew with the sums, when it comes and when it goes.
func TestDiskThatComes(t *testing.T) {
	t.Parallel()
	r := newRig(t, "6.12-v2", node.CgroupV2, nil) // each tick is a slow turn
	whom := targets(node.CgroupV2)
	whom.Pods, whom.HostApps = whom.Pods[1:], nil
	r.Follow(whom)
	metrics := []sample.Metric{sample.DiskReadBytes, sample.DiskReadIOPS, sample.DiskReadLatency}
	const old, late = 0, 1
	var read [2]int // MiB of each disk, all of it by the pod; a request is 1 MiB and takes 2 ms
	here := true    // the second
	put := func() {
		stats, io := "", ""
		for i := range read {
			if i == old || here {
				stats += fmt.Sprintf(" 259 %d nvme%dn1 %d 0 %d %d 0 0 0 0 0 0 0 0 0 0 0\n", i, i, read[i], read[i]*2048, read[i]*2)
				io += fmt.Sprintf("259:%d rbytes=%d wbytes=0 rios=%d wios=0 dbytes=0 dios=0\n", i, read[i]<<20, read[i])
			}
		}
		r.record.Put(t, "proc/diskstats", stats)
		r.record.Put(t, "sys/fs/cgroup"+whom.Pods[0].Cgroup+"/io.stat", io)
	}
	listed := false
	// tick has the disks read so many MiB.
	tick := func(first, second int) (lines []string) {
		read[old], read[late] = read[old]+first, read[late]+second
		put()
		r.now += unit.Second
		listed = r.scan(t).Disks == ReadWell
		for _, s := range r.got {
			for _, m := range metrics {
				if s.Metric == m && (s.Subject == sample.OfNode() || s.Subject == sample.OfPod(lsUID)) {
					lines = append(lines, fmt.Sprintf("%s %s %.6g", s.Subject, s.Metric, s.Value))
				}
			}
		}
		return lines
	}
	untilListed := func(first, second int) []string {
		for range 2 * listEvery {
			if lines := tick(first, second); listed {
				return lines
			}
		}
		t.Fatal("never listed")
		return nil
	}
	traffic := func(mib int) []string {
		bytes := fmt.Sprintf("%.6g", float64(mib<<20))
		pod := "pod/" + lsUID
		return []string{
			"node disk_read_bytes " + bytes, fmt.Sprint("node disk_read_iops ", mib), "node disk_read_latency 2000",
			pod + " disk_read_bytes " + bytes, fmt.Sprintf("%s disk_read_iops %d", pod, mib),
		}
	}
	read[late] = 1 << 20 // of another life
	tick(1, 0)
	expect(t, "one disk", tick(3, 600), traffic(3)...)
	r.record.Put(t, "sys/block/nvme1n1/dev", "259:1\n")
	expect(t, "attached, not listed", tick(3, 600), traffic(3)...)
	expect(t, "listed", untilListed(3, 600))
	expect(t, "both", tick(3, 5), traffic(8)...)
	expect(t, "listed again", untilListed(3, 5), traffic(8)...)
	r.record.Remove(t, "sys/block/nvme1n1")
	here = false
	expect(t, "taken away", tick(3, 0))
	expect(t, "the first alone", tick(3, 0), traffic(3)...)
	expect(t, "listed without it", untilListed(3, 0))
	expect(t, "the first alone again", tick(3, 0), traffic(3)...)
}
