// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/handoff"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/koordlet/internal/report"
	"github.com/koord-rt/koord-rt/koordlet/internal/window"
)

// refusing takes no status, because of err.
type refusing struct{ err error }

func (refusing) Get(context.Context, kube.Resource, string) ([]byte, error) {
	return []byte(`{"metadata":{"uid":"u"}}`), nil
}

func (f refusing) ReplaceStatus(_ context.Context, r kube.Resource, _, _ string, _ any) error {
	return fmt.Errorf("%s: %w", r.Plural, f.err)
}

// Why a status is not written stands among the sources: in the objects, where nobody writes, it cannot.
func TestReportSources(t *testing.T) {
	t.Parallel()
	if got := reportSources(nil, nil); got != nil {
		t.Errorf("without an API server: %+v", got)
	}
	for _, c := range []struct {
		err              error
		metric, strategy string
	}{
		{errors.New("forbidden"), "nodemetrics: forbidden", "nodeslos: forbidden"},
		{
			&kube.Error{Request: "PATCH", Code: 404, Reason: "NotFound", Named: true},
			"this node has no NodeMetric, which koord-manager makes: nodemetrics: PATCH: 404 NotFound",
			"this node has no NodeSLO, which koord-manager makes: nodeslos: PATCH: 404 NotFound",
		},
		{&kube.Error{Request: "PATCH", Code: 404, Reason: "NotFound"}, "nodemetrics: PATCH: 404 NotFound", "nodeslos: PATCH: 404 NotFound"}, // no such kind
	} {
		synctest.Test(t, func(t *testing.T) {
			in := report.Input{Window: window.New(window.Options{}), Policy: slo.DefaultCollect(), Pods: pods.New(pods.Options{}).Snapshot()}
			m, err := report.NewMetrics(report.MetricsOptions{API: refusing{c.err}, Node: "n", Input: func() (report.Input, bool) { return in, true }})
			if err != nil {
				t.Fatal(err)
			}
			s := report.NewStrategy(refusing{c.err}, "n")
			says := func(state, metric, strategy string) {
				t.Helper()
				want := []status.Source{{Name: "nodemetric-report", State: state, Reason: metric}, {Name: "nodeslo-status", State: state, Reason: strategy}}
				if d := cmp.Diff(want, reportSources(m, s)); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
			}
			says(status.StateActive, "", "")
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- m.Run(ctx) }()
			go func() { done <- s.Run(ctx) }()
			s.Put(report.InForce{UID: "u", Generation: 1})
			time.Sleep(report.DefaultCheck)
			synctest.Wait()
			says(status.StateDegraded, c.metric, c.strategy)
			cancel()
			if err := errors.Join(<-done, <-done); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFollows: an object is in force as soon as the engine has read what was handed on, and no sooner.
func TestFollows(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing":    `{}`,
		"thresholds": `{"resourceUsedThresholdWithBE":{"enable":true,"cpuSuppressPolicy":"cfsQuota","cpuSuppressThresholdPercent":30}}`,
		"documents":  `{"resourceThresholdStrategy":{"enable":true,"thresholds":{"cpu-suppress-percent":65}}}`,
		"extensions": `{"extensions":{"x":{ "b": 1.50, "a": "<&>" }},"hostApplications":[{"name":"web","qos":"LS","cgroupPath":{"base":"CgroupRoot","relativePath":"web"}}]}`,
		"empty list": `{"hostApplications":[],"extensions":{}}`,
		"blocks":     `{"resourceQOSStrategy":{"beClass":{"blkioQOS":{"enable":true,"blocks":[{"name":"/dev/sda","type":"device","ioCfg":{"readIOPS":100}}]}}}}`,
	} {
		o, err := slo.DecodeNodeSLO([]byte(`{"metadata":{"name":"node-001"},"spec":` + text + `}`))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		dir, state := t.TempDir(), t.TempDir()
		w, err := handoff.NewWriter(dir, state)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Strategy(1, &o.Spec, time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		read := handoff.Read(handoff.Options{RunDir: dir, StateDir: state}).Strategy
		if read == nil {
			t.Fatalf("%s: the strategy was not handed on", name)
		}
		inForce := strategy.Effective(*read)
		if !follows(&inForce, &o.Spec) {
			t.Errorf("%s: what was handed on counts as not in force", name)
		}
		percent := int64(31)
		o.Spec.ResourceUsedThresholdWithBE = &strategy.ResourceThresholdStrategy{CPUSuppressThresholdPercent: &percent}
		if follows(&inForce, &o.Spec) {
			t.Errorf("%s: a change that was not handed on counts as in force", name)
		}
	}
}
