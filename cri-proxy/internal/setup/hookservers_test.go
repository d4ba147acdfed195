// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/koord-rt/koord-rt/adapt/hook"
	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/hooks"
	"github.com/koord-rt/koord-rt/daemon/metrics"
	"github.com/koord-rt/koord-rt/engine"
)

// What becomes of hook servers stands in log, metric and status.
func TestHookServersAreTold(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	reg := prometheus.NewRegistry()
	m, err := metrics.NewEngine(reg, "cri")
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.DefaultProxy()
	cfg.Hooks.Dir = t.TempDir()
	g := engine.New(engine.Options{Config: cfg.Node, Log: log, Metrics: m, Views: engine.NewViews(cfg.Node, engine.Static{}, nil, "test")})
	h := newHookServers(cfg.Hooks, g, log)
	defer h.Close()
	h.observe(hooks.Call{Server: "koordlet", Hook: hook.PreCreateContainer, Result: hooks.ResultOK})
	h.observe(hooks.Call{Server: "koordlet", Hook: hook.PreCreateContainer, Result: hooks.ResultLeft})
	if text.Len() > 0 {
		t.Errorf("told for nothing: %s", text.String())
	}
	h.observe(hooks.Call{Server: "koordlet", Hook: hook.PreCreateContainer, Result: hooks.ResultIgnored, Err: errors.New("late"), Pause: time.Minute})
	h.observe(hooks.Call{Server: "koordlet", Hook: hook.PreCreateContainer, Result: hooks.ResultOK, Back: true})
	h.registered(hooks.Snapshot{Servers: []hooks.Server{{Name: "koordlet"}}, Problems: []hooks.Problem{{File: "/x.json", Reason: "not JSON"}}})
	for _, want := range []string{"reason=late", "not called for 1m0s", "answers again", "registered=[koordlet]", "not JSON"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, text.String())
		}
	}
	var told []string
	for _, p := range g.Status().Problems {
		told = append(told, p.Where+" | "+p.Key+" | "+p.Reason)
	}
	want := []string{
		"hook server koordlet | PreCreateContainer | late", "hook server koordlet | hook server | it does not answer in time and is not called for 1m0s",
		"/x.json | hook server | not JSON",
	}
	if strings.Join(told, "\n") != strings.Join(want, "\n") {
		t.Errorf("the status has\n%s", strings.Join(told, "\n"))
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := 0.0
	for _, f := range families {
		if f.GetName() == "koord_rt_cri_problems_total" {
			for _, m := range f.Metric {
				n += m.Counter.GetValue()
			}
		}
	}
	if n != 2 {
		t.Errorf("%v problems are counted", n)
	}
}
