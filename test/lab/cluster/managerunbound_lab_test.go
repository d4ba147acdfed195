// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
)

// TestClusterManagerUnbound: an API server whose plugin ValidatingAdmissionPolicy is off takes and stores packaging/manifests/policy-koordlet.yaml
// and does nothing by it, as one before Kubernetes 1.30 has no such thing. koord-manager works there, and its webhook still keeps agents from
// evicting pods of other nodes. What they write is not held to their node, and a koordlet says so.
func TestClusterManagerUnbound(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := t.TempDir()
	c := start(t, filepath.Join(dir, "cluster"), "--disable-admission-plugins=ValidatingAdmissionPolicy")
	begun := time.Now()
	a := &admitted{managed: &managed{governed: &governed{colocated: &colocated{c: c}, outer: t, dir: dir}}}
	a.prepare(ctx, t)
	says := a.findsOut(t, "a", "a") // beside the rest: it asks within ten seconds
	for _, s := range []struct {
		name string
		test func(*testing.T)
	}{
		{"controllers", a.controls}, {"strategy", a.strategy}, {"evictions", a.evictions}, {"writes", a.looseWrites},
	} {
		if !t.Run(s.name, s.test) {
			return
		}
	}
	if l := says(t); l.Result != "warn" || !strings.Contains(l.Detail, "does not hold koordlet to its node") || !strings.Contains(l.Next, "policy-koordlet.yaml") {
		t.Errorf("doctor of an agent that is not held to its node: %+v", l)
	}
	t.Logf("all after %s", time.Since(begun).Round(time.Millisecond))
}

// controls: what the ConfigMap says is in the NodeSLO.
func (a *admitted) controls(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	a.tell(t, map[string]string{keyThreshold: thresholdConfig(65)})
	got, err := a.c.Admin().Wait(ctx, slos+"/a", "NodeSLO after the ConfigMap", func(o cluster.Object) bool {
		return o != nil && percent(o, "cpuSuppressThresholdPercent") == 65
	})
	if err != nil {
		t.Fatalf("%v; spec %s", err, got.Compact("spec"))
	}
}

// looseWrites: the policy is there, and what it forbids passes. All of it is a dry run.
func (a *admitted) looseWrites(t *testing.T) {
	ctx := t.Context()
	const policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/"
	if _, err := a.c.Admin().Get(ctx, policies+"koordlet-own-node.koord-rt.dev"); err != nil {
		t.Errorf("the API server does not even serve the policy: %v", err)
	}
	seen := map[string]any{"status": map[string]any{"updateTime": "2026-11-22T12:00:00Z"}}
	for name, by := range map[string]*cluster.Client{"the agent of node a": a.agentA, "an agent of no node": a.unbound} {
		if _, err := by.Patch(ctx, reports+"/b/status?dryRun=All", cluster.MergePatch, seen); err != nil {
			t.Errorf("%s, the report of node b: %v", name, err)
		}
		if err := by.Delete(ctx, batchPods+"db-b?dryRun=All", -1); err != nil {
			t.Errorf("%s, a pod of node b: %v", name, err)
		}
	}
}

// foundOut: a koordlet says by itself whether it is held to its node. One whose token tells no node is held to none, and does not take that for
// its own.
func (a *admitted) foundOut(t *testing.T) {
	held, nowhere := a.findsOut(t, "a", "a"), a.findsOut(t, "b", "")
	if l := held(t); l.Result != "ok" || l.Next != "" {
		t.Errorf("doctor of an agent that is held to its node: %+v", l)
	}
	if l := nowhere(t); l.Result != "warn" || !strings.Contains(l.Detail, "its token does not say which that is") {
		t.Errorf("doctor of an agent whose token tells no node: %+v", l)
	}
}

// doctorLine is one of doctor's checks.
type doctorLine struct{ Check, Result, Detail, Next string }

// findsOut starts a koordlet that has an API server and neither runtime nor kubelet, so that it decides nothing for this machine and asks what each
// one asks. Its token is bound to the node of, "" to none. The result is doctor's check own-node, once koordlet has asked.
func (a *admitted) findsOut(t *testing.T, node, of string) func(*testing.T) doctorLine {
	t.Helper()
	kubeconfig, _, err := a.c.AgentKubeconfig(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(a.dir, "koordlet-"+node)
	at := func(name string) string { return filepath.Join(dir, name) }
	text, err := json.Marshal(map[string]any{
		"apiVersion": "koord-rt.dev/v1alpha1", "kind": "KoordletConfig", "nodeName": node,
		"runDir": at("run"), "stateDir": at("state"), "strategyFile": at("strategy.yaml"),
		"host":            map[string]any{"kubepodsRoot": "/koord-rt-lab-none"},
		"runtimeEndpoint": "unix://" + at("none.sock"),
		"kubelet":         map[string]any{"endpoint": ""},
		"apiServer":       map[string]any{"kubeconfig": kubeconfig},
		"metrics":         map[string]any{"address": "unix:" + at("metrics.sock")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(at("run"), 0o700), os.MkdirAll(at("state"), 0o700), os.WriteFile(at("koordlet.yaml"), text, 0o600)); err != nil {
		t.Fatal(err)
	}
	startProgram(t, at("koordlet.log"), bin("koordlet"), "--config", at("koordlet.yaml"))
	return func(t *testing.T) (found doctorLine) {
		t.Helper()
		eventually(t, 40*time.Second, func() error {
			// Most checks fail here, and with them the command: what it says counts.
			out, err := exec.CommandContext(t.Context(), bin("koordctl"), "--run-dir", at("run"), "doctor", "-o", "json").Output()
			var lines []doctorLine
			if bad := json.Unmarshal(out, &lines); bad != nil {
				return fmt.Errorf("koordctl doctor: %w: %s", errors.Join(err, bad), out)
			}
			i := slices.IndexFunc(lines, func(l doctorLine) bool { return l.Check == "own-node" })
			if i < 0 {
				return fmt.Errorf("doctor says nothing of it: %+v", lines)
			}
			if l := lines[i]; strings.HasPrefix(l.Detail, status.NotAskedYet) {
				if l.Result != "warn" || l.Next != "look again in ten seconds" {
					t.Fatalf("doctor of an agent that has not asked yet: %+v", l)
				}
				return fmt.Errorf("koordlet has not asked: %+v", l)
			}
			found = lines[i]
			return nil
		})
		return found
	}
}
