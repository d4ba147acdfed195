// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

const allOfTheLimit = "resourceQOSStrategy: {lsrClass: {memoryQOS: {enable: true, minLimitPercent: 100, lowLimitPercent: 100, throttlingPercent: 120}}}"

// TestGuestPageCache is ADR 0012 on a real kernel: a Guaranteed pod whose memory.min is its limit fills the page cache
// several times over. Its container must meet its own limit, reclaim, and live.
func TestGuestPageCache(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.startStrategy(allOfTheLimit, nil)
	run := r.create([]kubelet.Pod{{
		Name: "db", UID: "5c1e0100-0000-4000-8000-000000000001", Labels: map[string]string{"koordinator.sh/qosClass": "LSR"},
		Containers: []kubelet.Container{{
			Name: "pg",
			// The marker tells that dd has come to its end, whatever became of the writes.
			Command:   []string{"sh", "-c", "dd if=/dev/zero of=/big bs=64k count=3072 2>/dev/null; echo $? >/done; sleep 600"},
			Resources: kubelet.Resources{Limits: map[string]kubelet.Quantity{"cpu": "1", "memory": "48Mi"}},
		}},
	}})["db"]
	pid, err := r.pid(run, "pg")
	if err != nil {
		t.Fatal(err)
	}
	var rc string
	r.eventually(2*time.Minute, func() error {
		data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "root", "done"))
		rc = strings.TrimSpace(string(data))
		if err == nil && rc == "" {
			err = errors.New("dd's end is not told yet")
		}
		return err
	})
	if rc != "0" {
		t.Errorf("writing 192 MiB through a limit of 48 MiB ended with %s", rc)
	}
	container, pod := r.kube.ContainerDir(run, "pg", ""), r.kube.PodDir(run, "")
	for file, want := range map[string]string{"memory.min": "50331648", "memory.max": "50331648"} {
		if got := r.file(container, file); got != want {
			t.Errorf("container %s is %s, want %s", file, got, want)
		}
	}
	if n := event(r.file(container, "memory.events"), "max"); n == 0 {
		t.Error("the container never met its own limit: the test shows nothing")
	}
	for _, dir := range []string{container, pod} {
		if n := event(r.file(dir, "memory.events"), "oom_kill"); n != 0 {
			t.Errorf("%s: %d tasks were killed", dir, n)
		}
	}
	if n := event(r.file(pod, "memory.events.local"), "max"); n != 0 {
		t.Errorf("the pod met its limit %d times: its child is protected there", n)
	}
	t.Logf("container memory.events: %s", strings.ReplaceAll(r.file(container, "memory.events"), "\n", " "))
	r.stop(syscall.SIGTERM)
}

func (r *rig) file(dir, name string) string {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// event reads one counter of a file of them, as memory.events and cpu.stat are; -1 where it has none.
func event(text, key string) int {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			n, err := strconv.Atoi(f[1])
			if err == nil {
				return n
			}
		}
	}
	return -1
}
