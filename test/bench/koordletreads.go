// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// floor is the processor time, in seconds, that one thread needs to read once all files that our agent reads in each tick,
// with descriptors kept and nothing done with the text: cold with a second between two passes, as the agent finds the caches,
// and warm without.
func (n *labNode) floor(ctx context.Context, passes int) (cold, warm sample, err error) {
	paths, err := n.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	var files []int
	defer func() {
		for _, fd := range files {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	for _, p := range paths {
		fd, err := unix.Open(p, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, nil, fmt.Errorf("open %s: %w", p, err)
		}
		files = append(files, fd)
	}
	for range passes {
		if err := wait(ctx, time.Second); err != nil {
			return nil, nil, err
		}
		for _, to := range []*sample{&cold, &warm} {
			took, err := pass(files)
			if err != nil {
				return nil, nil, err
			}
			*to = append(*to, took)
		}
	}
	return cold, warm, nil
}

// pass reads every file once and returns the processor time that it took, in seconds.
func pass(files []int) (float64, error) {
	buf := make([]byte, 64<<10)
	runtime.LockOSThread() // the clock is the thread's
	defer runtime.UnlockOSThread()
	begin, err := threadTime()
	if err != nil {
		return 0, err
	}
	for _, fd := range files {
		if _, err := unix.Pread(fd, buf, 0); err != nil {
			return 0, fmt.Errorf("read a file of the floor: %w", err)
		}
	}
	end, err := threadTime()
	return (end - begin).Seconds(), err
}

func threadTime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0, fmt.Errorf("read the thread's clock: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}

// read are the files of one tick: of each pod and each of its containers CPU time, throttling and memory, and two of the
// node.
func (n *labNode) read(ctx context.Context) ([]string, error) {
	tree, err := cgroups.Detect()
	if err != nil {
		return nil, err
	}
	pods, err := n.cluster.Admin().Items(ctx, podsPath)
	if err != nil {
		return nil, err
	}
	out := []string{"/proc/stat", "/proc/meminfo"}
	for _, p := range pods {
		for _, dir := range groupsOf(p) {
			dir = filepath.Join(n.rig.host.Cgroup, dir)
			if tree.V2() {
				out = append(out, filepath.Join(tree.Unified, dir, "cpu.stat"), filepath.Join(tree.Unified, dir, "memory.stat"))
				continue
			}
			out = append(out, filepath.Join(tree.Controllers["cpuacct"], dir, "cpuacct.usage"),
				filepath.Join(tree.Controllers["cpu"], dir, "cpu.stat"), filepath.Join(tree.Controllers["memory"], dir, "memory.stat"))
		}
	}
	return out, nil
}

// groupsOf are the control groups of a pod and its containers below the kubelet's root, as its cgroupfs driver names them.
func groupsOf(p cluster.Object) []string {
	class := map[string]string{"Burstable": "burstable", "BestEffort": "besteffort"}[p.Str("status", "qosClass")]
	dir := filepath.Join("kubepods", class, "pod"+p.Str("metadata", "uid"))
	out := []string{dir}
	list, _ := p.At("status", "containerStatuses").([]any)
	for i := range list {
		_, id, _ := strings.Cut(p.Str("status", "containerStatuses", i, "containerID"), "://")
		out = append(out, filepath.Join(dir, id))
	}
	return out
}

// reported is of how many of the pods NodeMetric tells.
func (n *labNode) reported(ctx context.Context) (int, error) {
	m, err := n.cluster.Admin().Get(ctx, sloPath+"/nodemetrics/"+n.kubelet.Node)
	if err != nil {
		return 0, err
	}
	list, _ := m.At("status", "podsMetric").([]any)
	found := 0
	for i := range list {
		if m.Str("status", "podsMetric", i, "namespace") == namespace {
			found++
		}
	}
	return found, nil
}

// auditPolicy has the API server note what these users ask, and nothing else.
func auditPolicy(names ...string) string {
	return `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"], "rules": [` +
		`{"level": "Metadata", "users": ["` + strings.Join(names, `", "`) + `"]}, {"level": "None"}]}` + "\n"
}

// asked is what a user asked of the API server.
type asked struct {
	// dry are writes by dry run: the API server answers as to a write, and keeps nothing.
	writes, reads, dry int
	// kinds are requests by verb and resource with their number, in order.
	kinds []string
}

// auditEvent is a line of the API server's audit log (audit.k8s.io/v1).
type auditEvent struct {
	Verb           string
	User           struct{ Username string }
	ObjectRef      struct{ Resource, Subresource string }
	RequestURI     string
	StageTimestamp time.Time
}

// dryRun reports whether a request asks the API server to keep nothing (dryRun=All).
func dryRun(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && u.Query().Get("dryRun") == "All"
}

// audited counts what a user asked in a window by an audit log, watches left out: they stand.
func audited(log, user string, from, to time.Time) (asked, error) {
	f, err := os.Open(log)
	if err != nil {
		return asked{}, fmt.Errorf("read audit log: %w", err)
	}
	defer f.Close()
	var out asked
	kinds := map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return asked{}, fmt.Errorf("read audit log: %w", err)
		}
		if e.User.Username != user || e.StageTimestamp.Before(from) || e.StageTimestamp.After(to) || e.Verb == "watch" {
			continue
		}
		kind := strings.TrimSuffix(e.Verb+" "+e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")
		switch e.Verb {
		case "create", "update", "patch", "delete", "deletecollection":
			if dryRun(e.RequestURI) {
				out.dry++
				kind += " by dry run"
			} else {
				out.writes++
			}
		default:
			out.reads++
		}
		kinds[kind]++
	}
	if err := lines.Err(); err != nil {
		return asked{}, fmt.Errorf("read audit log: %w", err)
	}
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		out.kinds = append(out.kinds, fmt.Sprintf("%d %s", kinds[k], k))
	}
	return out, nil
}
