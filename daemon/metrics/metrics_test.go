// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package metrics

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/model/drift"
	"github.com/koord-rt/koord-rt/model/node"
	"github.com/koord-rt/koord-rt/model/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func filled(t *testing.T) (*Engine, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	m, err := NewEngine(reg, "nri")
	if err != nil {
		t.Fatal(err)
	}
	m.ObserveEvent(EventCreateContainer, 30*time.Microsecond)
	m.Late(EventCreateContainer)
	m.Decision(protocol.FeatureBatch, OutcomeApplied)
	m.Observed(protocol.FeatureLLC)
	m.Problem(protocol.AnnotationCPUBurst)
	m.Problem("hostile.example/1")
	m.Problem("hostile.example/2")
	m.Proof(plan.CPUShares, ResultOK)
	m.Write(plan.CPUBurst, ResultError)
	m.Early(plan.CPUBurst)
	m.Drift(plan.CPUQuota, drift.Runtime|drift.Systemd)
	m.FailOpen(FailOpenDeadline)
	m.LedgerError(3)
	m.SetUnmanaged(2)
	m.SetContainers(5)
	m.SetConnected(true)
	m.SetConnected(true)
	m.SetGeneration(7)
	m.SetClaims(4, 2)
	m.SetFeatures([]node.FeatureState{{Feature: "batch", State: "degraded"}, {Feature: "hostile", State: "active"}})
	m.SetBuild("v1", "containerd", "2.4\n", "0.12")
	return m, reg
}

// get asks a server on a unix socket.
func get(t *testing.T, socket, path string) (int, string) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	res, err := (&http.Client{Transport: tr}).Get("http://x" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestEveryMetricOfTheCatalogueIsServed(t *testing.T) {
	t.Parallel()
	_, reg := filled(t)
	path := filepath.Join(t.TempDir(), "m.sock")
	ctx, cancel := context.WithCancel(t.Context())
	l, err := Listen(ctx, "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	var sick atomic.Bool
	done := make(chan error)
	go func() {
		done <- Serve(ctx, l, reg, func() error {
			if sick.Load() {
				return errors.New("no view")
			}
			return nil
		})
	}()
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v %v", st, err)
	}
	get := func(p string) (int, string) { return get(t, path, p) }
	code, text := get("/metrics")
	if code != http.StatusOK {
		t.Fatal(code)
	}
	for _, m := range Catalogue("nri") {
		if m.Help == "" || len(m.Labels) > 0 && m.Values == "" || !strings.Contains(text, "# HELP "+m.Name+" "+m.Help) ||
			!strings.Contains(text, "# TYPE "+m.Name+" "+string(m.Kind)) {
			t.Errorf("%s is not documented or not served", m.Name)
		}
	}
	for _, want := range []string{
		`koord_rt_nri_event_duration_seconds_bucket{event="CreateContainer",le="3.5e-05"} 1`,
		`koord_rt_nri_drift_total{knob="cpu.quota",source="runtime-or-systemd"} 1`,
		`koord_rt_nri_problems_total{key="other"} 2`, `koord_rt_nri_problems_total{key="koordinator.sh/cpuBurst"} 1`,
		`koord_rt_nri_proof_total{knob="cpu.shares",result="ok"} 1`, `koord_rt_nri_connects_total 1`,
		`koord_rt_nri_feature_state{feature="batch",state="degraded"} 1`, `koord_rt_nri_claimed_cpus{class="LSE"} 4`,
		`runtime_version="2.4?"`, `koord_rt_nri_ledger_errors_total 3`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %s", want)
		}
	}
	if strings.Contains(text, "hostile") {
		t.Error("a pod made a series")
	}
	if code, _ := get("/healthz"); code != http.StatusOK {
		t.Errorf("healthy: %d", code)
	}
	sick.Store(true)
	if code, body := get("/healthz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "no view") {
		t.Errorf("sick: %d %s", code, body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket left behind: %v", err)
	}
}

func TestListenRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{":9100", "0.0.0.0:9100", "[::]:9100", "example.invalid:1", "nonsense", "unix:" + file} {
		if l, err := Listen(t.Context(), a); err == nil {
			_ = l.Close()
			t.Errorf("%s accepted", a)
		}
	}
	if l, err := Listen(t.Context(), ""); l != nil || err != nil {
		t.Errorf("empty: %v %v", l, err)
	}
	for _, a := range []string{"127.0.0.1:0", "localhost:0"} {
		l, err := Listen(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
	// What an earlier life left behind is replaced.
	path := filepath.Join(t.TempDir(), "m.sock")
	for range 2 {
		l, err := Listen(t.Context(), "unix:"+path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
}

func TestAfterStartIsThatOfProxies(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := NewEngine(reg, "cri")
	if err != nil {
		t.Fatal(err)
	}
	m.AfterStart(3 * time.Millisecond)
	nri, others := filled(t)
	nri.AfterStart(time.Second)
	for r, want := range map[*prometheus.Registry]uint64{reg: 1, others: 0} {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var got uint64
		for _, f := range families {
			if strings.HasSuffix(f.GetName(), "_after_start_seconds") {
				got += f.Metric[0].Histogram.GetSampleCount()
			}
		}
		if got != want {
			t.Errorf("%d starts are measured, want %d", got, want)
		}
	}
	all := Catalogue("cri")
	if last := all[len(all)-1]; last.Name != "koord_rt_cri_after_start_seconds" || len(Catalogue("nri")) != len(all)-1 {
		t.Errorf("catalogue of the proxy ends with %s", last.Name)
	}
	if n := testing.AllocsPerRun(100, func() { m.AfterStart(time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	m, _ := filled(t)
	if n := testing.AllocsPerRun(100, func() {
		m.ObserveEvent(EventCreateContainer, time.Microsecond)
		m.Decision(protocol.FeatureBatch, OutcomeApplied)
		m.Proof(plan.CPUShares, ResultOK)
		m.Write(plan.CPUBurst, ResultError)
		m.Problem("x")
		m.Late(EventCreateContainer)
		m.FailOpen(FailOpenDeadline)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestOutOfRangeIsIgnoredAndTwiceIsAnError(t *testing.T) {
	t.Parallel()
	m, reg := filled(t)
	m.ObserveEvent(NumEvents, 1)
	m.Late(NumEvents + 9)
	m.Decision(protocol.Feature(200), OutcomeApplied)
	m.Decision(protocol.FeatureBatch, NumOutcomes)
	m.Proof(plan.NumKnobs+3, ResultOK)
	m.Write(plan.CPUShares, NumResults)
	m.Drift(plan.NumKnobs, drift.Someone)
	m.Drift(plan.CPUShares, drift.Source(drift.NumSources))
	m.FailOpen(NumFailOpens)
	if _, err := NewEngine(reg, "nri"); err == nil {
		t.Error("registered twice")
	}
}
