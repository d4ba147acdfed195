// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/unit"
	"github.com/koord-rt/koord-rt/test/lab/cri"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// upProxy starts the proxy with a strategy (a bare NodeSLO spec) and puts the kubelet behind it.
func (p *viaProxy) upProxy(spec string, more map[string]any) {
	p.t.Helper()
	all := map[string]any{}
	if spec != "" {
		var parsed any
		if err := yaml.Unmarshal([]byte(spec), &parsed); err != nil {
			p.t.Fatal(err)
		}
		all["strategy"] = parsed
	}
	for k, v := range more {
		all[k] = v
	}
	p.begin(p.proxyConfig(nil, all))
}

// crash is kill -9 of the proxy; the kubelet stays behind it.
func (p *viaProxy) crash() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	<-p.exited
}

// proxyMetric is the present sum of a metric's series of the proxy.
func (p *viaProxy) proxyMetric(parts ...string) float64 {
	p.t.Helper()
	m, err := scrape(over(filepath.Join(p.run, "proxy-metrics.sock")), "http://koord-runtime-proxy/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	return sum(m, parts...)
}

// normalise publishes a ratio of CPU normalisation, in hundredths.
func (p *viaProxy) normalise(generation uint64, ratio unit.Ratio) {
	p.t.Helper()
	w, err := handoff.NewWriter(p.run, p.state)
	if err != nil {
		p.t.Fatal(err)
	}
	d := node.Dynamic{Known: true, Expires: time.Now().Add(time.Hour), Normalization: ratio}
	if err := w.Dynamic(generation, d, time.Now()); err != nil {
		p.t.Fatal(err)
	}
}

// records are the ledger's, of every writer.
func (p *viaProxy) records() []journal.Record {
	p.t.Helper()
	records, _, err := ledger.ReadAll(p.run) // a killed writer leaves a cut line
	if err != nil {
		p.t.Fatal(err)
	}
	return records
}

// mark is the annotation of ours on a container, nil for none.
func (p *viaProxy) mark(id string) *protocol.Applied {
	p.t.Helper()
	st, _, err := p.host.CRI().ContainerStatus(p.t.Context(), id)
	if err != nil {
		p.t.Fatal(err)
	}
	text := st.Annotations[protocol.AnnotationApplied]
	if text == "" {
		return nil
	}
	m, err := protocol.ParseApplied(text)
	if err != nil {
		p.t.Fatalf("annotation %q: %v", text, err)
	}
	return &m
}

// stubborn is a kubelet that tries again: each failed step is followed by a look at what the runtime has, and what is
// left of the attempt is removed before the next one, as a new attempt of the kubelet's would.
type stubborn struct {
	kube   *kubelet.Kubelet
	client *cri.Client
	// disturbed, where it is set, is when the last disturbance ended, zero while there is one: shortest, after which it gives up, counts from
	// then on, since what is cut again and again takes as long as the cuts go on.
	disturbed func() time.Time
	// kill removes a task that the runtime has lost: a start that is cut while runc starts the process may leave a container
	// that CRI calls exited, with a task that it cannot delete (containerd 2.4, with and without a proxy).
	kill func(id string) error
	// failed, where it is set, hears of the first failure of each step.
	failed func(step string, begun time.Time, err error)
	// tries counts the steps that failed and were tried again, lost the tasks that were killed so.
	tries, lost int
}

func (p *viaProxy) stubborn() *stubborn {
	disturbed := func() time.Time { return time.Unix(0, p.revived.Load()) }
	return &stubborn{kube: p.kube, client: p.client, disturbed: disturbed, kill: func(id string) error {
		return p.host.Ctr(p.t.Context(), "tasks", "rm", "--force", id)
	}}
}

func (s *stubborn) again(ctx context.Context, what string, step func() error) error {
	begun := time.Now()
	for first := true; ; first = false {
		err := step()
		if err != nil && first && s.failed != nil {
			s.failed(what, begun, err)
		}
		if err == nil || time.Since(s.calm(begun)) > patience(shortest) || ctx.Err() != nil {
			if err != nil {
				err = fmt.Errorf("%s after %d tries: %w", what, s.tries, err)
			}
			return err
		}
		s.tries++
		time.Sleep(20 * time.Millisecond)
	}
}

// calm is since when a step that began then is left alone.
func (s *stubborn) calm(begun time.Time) time.Time {
	if s.disturbed == nil {
		return begun
	}
	at := s.disturbed()
	if at.IsZero() {
		return time.Now()
	}
	return later(begun, at)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// start brings a pod of one container up.
func (s *stubborn) start(ctx context.Context, p kubelet.Pod) (run *kubelet.Running, err error) {
	err = s.again(ctx, "run pod "+p.Name, func() error {
		if run, err = s.kube.RunPod(ctx, p); err == nil {
			return nil
		}
		return errors.Join(err, s.dropPods(ctx, p.UID))
	})
	if err != nil {
		return nil, err
	}
	err = s.again(ctx, "create in "+p.Name, func() error {
		if _, err := s.kube.CreateContainer(ctx, run, "main"); err != nil {
			return errors.Join(err, s.dropContainers(ctx, p.UID))
		}
		return nil
	})
	if err != nil {
		return run, err
	}
	return run, s.again(ctx, "start of "+p.Name, func() error {
		err := s.kube.StartContainer(ctx, run, "main")
		if err == nil {
			return nil
		}
		st, _, statusErr := s.client.ContainerStatus(ctx, run.Containers["main"])
		switch {
		case statusErr == nil && st.State == runtimeapi.ContainerState_CONTAINER_RUNNING:
			return nil
		case statusErr == nil && st.State == runtimeapi.ContainerState_CONTAINER_CREATED, statusErr != nil && status.Code(statusErr) != codes.NotFound:
			return errors.Join(err, statusErr)
		}
		// It ended, or the runtime took it back: another one takes its place.
		if statusErr = s.dropContainers(ctx, p.UID); statusErr == nil {
			_, statusErr = s.kube.CreateContainer(ctx, run, "main")
		}
		return errors.Join(err, statusErr)
	})
}

// stop removes a pod; the kubelet of the lab forgets it at the first call, so what the runtime still has follows.
func (s *stubborn) stop(ctx context.Context, run *kubelet.Running) error {
	stopped := false // the lab's kubelet does nothing the second time
	return s.again(ctx, "removal of "+run.Pod.Name, func() error {
		if !stopped {
			stopped = true
			return s.kube.StopPod(ctx, run)
		}
		return s.dropPods(ctx, run.Pod.UID)
	})
}

// dropContainers removes a pod's containers.
func (s *stubborn) dropContainers(ctx context.Context, uid string) error {
	list, err := s.client.Containers(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list {
		if c.Labels["io.kubernetes.pod.uid"] != uid {
			continue
		}
		err := s.client.StopContainer(ctx, c.Id, 0)
		if err == nil {
			err = s.client.RemoveContainer(ctx, c.Id)
		}
		if err != nil && strings.Contains(err.Error(), "cannot delete running task") && s.kill != nil {
			s.lost++
			err = errors.Join(err, s.kill(c.Id))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// dropPods removes a pod's sandboxes with what is in them.
func (s *stubborn) dropPods(ctx context.Context, uid string) error {
	list, err := s.client.Pods(ctx)
	if err != nil {
		return err
	}
	errs := []error{s.dropContainers(ctx, uid)}
	for _, sb := range list {
		if sb.Metadata.Uid == uid {
			errs = append(errs, s.client.StopPod(ctx, sb.Id), s.client.RemovePod(ctx, sb.Id))
		}
	}
	return errors.Join(errs...)
}

// leftovers counts pods' sandboxes, containers, tasks of runc with a process and without (dust), and the cgroups below the lab's root.
func (p *viaProxy) leftovers() map[string]int {
	p.t.Helper()
	out := map[string]int{}
	pods, err := p.host.CRI().Pods(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	containers, err := p.host.CRI().Containers(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	out["sandboxes"], out["containers"] = len(pods), len(containers)
	live, dust := p.tasks()
	out["tasks"], out["dust"] = len(live), len(dust)
	out["cgroups"] = len(p.podCgroups())
	return out
}

// tasks are the folders that runc keeps of tasks: those of a process that is there, and dust. A runc that is killed while it
// creates a task leaves its folder behind; containerd kills it when the client of a call goes, with and without a proxy
// (TestHostProxyKilledBetween pairs the two).
func (p *viaProxy) tasks() (live, dust []string) {
	p.t.Helper()
	folders, err := filepath.Glob(filepath.Join(p.host.Runc, "*", "*"))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, dir := range folders {
		var state struct {
			PID int `json:"init_process_pid"`
		}
		data, err := os.ReadFile(filepath.Join(dir, "state.json"))
		if err == nil {
			err = json.Unmarshal(data, &state)
		}
		if _, gone := os.Stat(fmt.Sprintf("/proc/%d", state.PID)); err == nil && gone == nil {
			live = append(live, dir)
		} else {
			dust = append(dust, filepath.Base(dir))
		}
	}
	return live, dust
}

// podCgroups lists the directories of pods and below, in the hierarchy of cpu.
func (p *viaProxy) podCgroups() (dirs []string) {
	p.t.Helper()
	mount := p.tree.Controllers["cpu"]
	if p.tree.V2() {
		mount = p.tree.Unified
	}
	root := mount + p.root()
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, "/pod") {
			dirs = append(dirs, path)
		}
		return nil // what goes while we look is gone
	})
	if err != nil {
		p.t.Fatal(err)
	}
	slices.Sort(dirs)
	return dirs
}

// answers is what koordctl says, with every part in it.
func (p *viaProxy) answers(args []string, parts ...string) string {
	p.t.Helper()
	p.says(args, parts...)
	out, err := p.ctl(args...)
	if err != nil {
		p.t.Errorf("koordctl %v: %v", args, err)
	}
	return out
}

// proxyLives are the tests of behaviour over time, each with a run directory of its own.
func proxyLives(t *testing.T, o rigOptions, tests []proxyLife) {
	p := newProxyRig(t, o)
	for _, l := range tests {
		t.Run(l.name, func(t *testing.T) {
			sub := p.subProxy(t)
			sub.freshRun()
			l.test(sub)
		})
	}
}

type proxyLife struct {
	name string
	test func(*viaProxy)
}
