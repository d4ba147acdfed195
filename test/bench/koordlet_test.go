// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// Lines as Linux 6.18 and kube-apiserver 1.36 write them.
const (
	statLine = "4242 (a (b) c) S 1 4242 4242 0 -1 4194560 5131 812 3 0 137 45 7 2 20 0 9 0 1234 1290000 2048 18446744073709551615 1 1 0\n"
	threadOf = "Name:\tkoordlet\nThreads:\t9\nvoluntary_ctxt_switches:\t1207\nnonvoluntary_ctxt_switches:\t31\n"
	auditLog = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","verb":"update","user":{"username":"a","groups":["system:masters"]},"objectRef":{"resource":"nodemetrics","name":"node0","apiGroup":"slo.koordinator.sh","subresource":"status"},"stageTimestamp":"2026-11-22T05:00:01.000000Z"}
{"verb":"update","user":{"username":"a"},"objectRef":{"resource":"nodemetrics","subresource":"status"},"stageTimestamp":"2026-11-22T05:00:02.000000Z"}
{"verb":"create","user":{"username":"b"},"objectRef":{"resource":"events"},"stageTimestamp":"2026-11-22T05:00:02.000000Z"}
{"verb":"watch","user":{"username":"a"},"objectRef":{"resource":"nodes"},"stageTimestamp":"2026-11-22T05:00:03.000000Z"}
{"verb":"get","user":{"username":"a"},"objectRef":{"resource":"nodes"},"stageTimestamp":"2026-11-22T05:00:03.000000Z"}
{"verb":"create","requestURI":"/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies?dryRun=All&fieldManager=x","user":{"username":"a"},"objectRef":{"resource":"noderesourcetopologies"},"stageTimestamp":"2026-11-22T05:00:04.000000Z"}
{"verb":"get","user":{"username":"a"},"objectRef":{"resource":"nodes"},"stageTimestamp":"2026-11-22T05:00:09.000000Z"}
`
)

func TestProcessText(t *testing.T) {
	t.Parallel()
	own, children, err := statTicks(statLine)
	if err != nil || own != 182 || children != 9 {
		t.Errorf("processor time %d and %d, %v", own, children, err)
	}
	if _, _, err := statTicks("4242 (a) S 1 2 3"); err == nil {
		t.Error("a stat that was cut off is taken")
	}
	if v, f := switches(threadOf); v != 1207 || f != 31 {
		t.Errorf("%d and %d switches", v, f)
	}
	if u, err := usedBy(os.Getpid()); err != nil || u.threads == 0 || u.voluntary == 0 {
		t.Errorf("of this process: %+v, %v", u, err)
	}
}

func TestAudited(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(log, []byte(auditLog), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(second int) time.Time { return time.Date(2026, 11, 22, 5, 0, second, 0, time.UTC) }
	got, err := audited(log, "a", at(0), at(5))
	want := asked{writes: 2, reads: 1, dry: 1, kinds: []string{"1 create noderesourcetopologies by dry run", "1 get nodes", "2 update nodemetrics/status"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(asked{})); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestGroupsOf(t *testing.T) {
	t.Parallel()
	p := cluster.Object{
		"metadata": map[string]any{"uid": "8f1c"},
		"status": map[string]any{"qosClass": "BestEffort", "containerStatuses": []any{
			map[string]any{"containerID": "containerd://ab12"}, map[string]any{"containerID": "containerd://cd34"},
		}},
	}
	want := []string{"kubepods/besteffort/pod8f1c", "kubepods/besteffort/pod8f1c/ab12", "kubepods/besteffort/pod8f1c/cd34"}
	if diff := cmp.Diff(want, groupsOf(p)); diff != "" {
		t.Error(diff)
	}
}

func TestPass(t *testing.T) {
	t.Parallel()
	f, err := os.Open("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pass([]int{int(f.Fd()), int(f.Fd())}); err != nil {
		t.Errorf("two files that are open: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := pass([]int{-1}); err == nil {
		t.Error("a file that is not open is read")
	}
}

func TestAgentOptions(t *testing.T) {
	t.Parallel()
	for legs, ok := range map[string]bool{"ours": true, "upstream,ours": true, "": false, "ours,": false, "theirs": false} {
		o := agentOptions{legs: legs, window: time.Minute}
		if err := o.check(); (err == nil) != ok {
			t.Errorf("-legs %q: %v", legs, err)
		}
	}
}

// TestTellAgents: the worst leg is judged, and one more write than there are intervals is the window's phase.
func TestTellAgents(t *testing.T) {
	t.Parallel()
	one := func(name string, cores float64, rss int64, writes int) leg {
		return leg{name: name, spent: spent{cores: cores, memory: resident{rss: rss << 10}}, length: 2 * time.Minute, asked: asked{writes: writes}}
	}
	for name, c := range map[string]struct {
		legs []leg
		want map[string]string
	}{
		"all met": {[]leg{one(wayOurs, 0.004, 30, 3), one(wayUpstream, 0.08, 100, 30), one(wayOurs, 0.005, 39, 2)}, map[string]string{
			"CPU of a core, ours": "ok", "CPU, ours / reads alone": "ok", "memory, ours": "ok", "API writes per report interval, ours": "ok",
			"CPU of a core, upstream": "", "memory, upstream": "", "API writes per report interval, upstream": "",
		}},
		"the second leg misses": {[]leg{one(wayOurs, 0.004, 30, 3), one(wayOurs, 0.007, 41, 4)}, map[string]string{
			"CPU of a core, ours": "missed", "CPU, ours / reads alone": "missed", "memory, ours": "missed", "API writes per report interval, ours": "missed",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &report{}
			tellAgents(r, c.legs, 0.002)
			got := map[string]string{}
			for _, f := range r.figures {
				if _, named := c.want[f.name]; named || f.goal != "" {
					got[f.name] = f.verdict
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
