// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package exercise

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// running is what an API server says of a running pod, as far as the subtests look.
func running(t *testing.T, class string) cluster.Object {
	t.Helper()
	pod, err := cluster.ParseObject([]byte(`{"kind":"Pod","metadata":{"name":"web","uid":"6f4d2c1e-0000-4000-8000-000000000001"},
		"status":{"phase":"Running","qosClass":"` + class + `","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[
		{"name":"main","containerID":"containerd://0123abcd","restartCount":1,"started":true,"state":{"running":{"startedAt":"2026-05-01T12:00:00Z"}},
		"resources":{"limits":{"cpu":"700m","memory":"128Mi"}}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestStatus(t *testing.T) {
	t.Parallel()
	pod := running(t, "Burstable")
	if id := containerID(pod); id != "0123abcd" {
		t.Errorf("container id %q", id)
	}
	if id := containerID(cluster.Object{}); id != "" {
		t.Errorf("id %q of a pod that has not started", id)
	}
	if n, cpu := pod.Int(status("restartCount")...), pod.Str(status("resources", "limits", "cpu")...); n != 1 || cpu != "700m" {
		t.Errorf("%d restarts, limit %q", n, cpu)
	}
}

func TestPod(t *testing.T) {
	t.Parallel()
	n := &node{k: &cluster.Kubelet{Node: "node1"}, labels: map[string]string{"koordinator.sh/qosClass": "LS"}}
	pod, err := n.pod("web", web+"resources: {limits: {cpu: 200m}}")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "web", "labels": map[string]any{"koordinator.sh/qosClass": "LS"}},
		"spec": map[string]any{
			"nodeName": "node1", "dnsPolicy": "Default", "terminationGracePeriodSeconds": 1.0,
			"containers": []any{map[string]any{
				"name": "main", "image": parts.ImageRef, "imagePullPolicy": "Never",
				"command":   []any{"/bin/sh", "-c", "echo hello from $POD; mkdir -p /www; echo served by $POD > /www/index.html; exec httpd -f -p 8080 -h /www"},
				"env":       []any{map[string]any{"name": "POD", "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "metadata.name"}}}},
				"resources": map[string]any{"limits": map[string]any{"cpu": "200m"}},
			}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := n.pod("web", "command: ["); err == nil {
		t.Error("a text that is no YAML was accepted")
	}
}

// A control file is looked for where the kubelet's driver cgroupfs puts it, in the version's own hierarchy.
func TestCheck(t *testing.T) {
	t.Parallel()
	const pod, ctr = "pod6f4d2c1e-0000-4000-8000-000000000001", "0123abcd"
	for name, c := range map[string]struct {
		class, dir, file string
		v2               bool
	}{
		"guaranteed, v1":  {"Guaranteed", "cpu/lab/kubepods/" + pod, "cpu.cfs_quota_us", false},
		"burstable, v1":   {"Burstable", "cpu/lab/kubepods/burstable/" + pod, "cpu.cfs_quota_us", false},
		"best effort, v1": {"BestEffort", "cpu/lab/kubepods/besteffort/" + pod, "cpu.cfs_quota_us", false},
		"burstable, v2":   {"Burstable", "lab/kubepods/burstable/" + pod, "cpu.max", true},
	} {
		root := t.TempDir()
		tree := cgroups.Tree{Controllers: map[string]string{"cpu": filepath.Join(root, "cpu"), "memory": filepath.Join(root, "memory")}}
		if c.v2 {
			tree = cgroups.Tree{Unified: root}
		}
		n := &node{k: &cluster.Kubelet{CgroupRoot: "lab"}, tree: tree}
		dir := filepath.Join(root, c.dir, ctr)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte("20000\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p := running(t, c.class)
		if err := n.check(p, "cpu", "cpu.cfs_quota_us=20000", "cpu.max=20000"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for what, wrong := range map[string]string{"another value": "=20001", "no such file or directory": ".none=20000"} {
			err := n.check(p, "cpu", "cpu.cfs_quota_us"+wrong, "cpu.max"+wrong)
			if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "of web") {
				t.Errorf("%s: %v, want %q", name, err, what)
			}
		}
		if err := n.check(p, "memory", "cpu.cfs_quota_us=20000", "cpu.max=20000"); (err == nil) != c.v2 {
			t.Errorf("%s, looked for with another controller: %v", name, err)
		}
	}
}

// The end of a pod's groups is waited for in every hierarchy, and no longer than the context lasts.
func TestWaitNoCgroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		n := &node{k: &cluster.Kubelet{CgroupRoot: "lab"}, tree: cgroups.Tree{
			Controllers: map[string]string{"cpu": filepath.Join(root, "cpu"), "memory": filepath.Join(root, "memory")},
		}}
		gone, other := filepath.Join(root, "memory/lab/kubepods/poduid-1"), filepath.Join(root, "cpu/lab/kubepods/poduid-2")
		for _, dir := range []string{filepath.Join(gone, "c"), other} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		time.AfterFunc(5*time.Second, func() {
			if err := os.RemoveAll(gone); err != nil {
				t.Error(err)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		begun := time.Now()
		if err := n.waitNoCgroup(ctx, "uid-1"); err != nil || time.Since(begun) < 5*time.Second {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
		if err := n.waitNoCgroup(ctx, "uid-2"); err == nil || !strings.Contains(err.Error(), other) || ctx.Err() == nil {
			t.Errorf("a group that stays: %v", err)
		}
	})
}

// The port is read from what kubectl prints; it prints another line for IPv6.
func TestForwarding(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"Forwarding from 127.0.0.1:41234 -> 8080\n": "41234",
		"Forwarding from [::1]:41234 -> 8080\n":     "",
		"error: unable to forward port\n":           "",
	} {
		got := ""
		if m := forwarding.FindStringSubmatch(line); m != nil {
			got = m[1]
		}
		if got != want {
			t.Errorf("%q: port %q, want %q", line, got, want)
		}
	}
}

func TestFetch(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("served " + r.URL.Path)) // the client is below
	}))
	if body, err := fetch(t.Context(), server.URL+"/a"); err != nil || body != "served /a" {
		t.Errorf("%q, %v", body, err)
	}
	server.Close()
	if body, err := fetch(t.Context(), server.URL); err == nil {
		t.Errorf("a server that is gone answers %q", body)
	}
}

// Both transports are asked for, by the same variables.
func TestTransports(t *testing.T) {
	t.Parallel()
	names := func(env []string) (out []string) {
		for _, kv := range env {
			name, _, _ := strings.Cut(kv, "=")
			out = append(out, name)
		}
		return out
	}
	if diff := cmp.Diff(names(transports["websocket"]), names(transports["spdy"])); diff != "" || len(transports) != 2 || len(transports["spdy"]) != 2 {
		t.Errorf("%v: %s", transports, diff)
	}
}
