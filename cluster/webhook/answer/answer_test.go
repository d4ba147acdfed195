// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package answer

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const hook = "mutate-pod"

func newAnswers(t *testing.T) *Answers {
	t.Helper()
	a, err := New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// logged is a context whose log ends up in the text.
func logged(t *testing.T) (context.Context, *strings.Builder) {
	var text strings.Builder
	log := funcr.New(func(prefix, args string) { text.WriteString(prefix + args + "\n") }, funcr.Options{})
	return logf.IntoContext(t.Context(), logr.Logger(log)), &text
}

// TestPanic: the request passes with a warning and is counted. What the handler panicked with can quote a pod, so it stands neither
// in the answer nor in the log; where it did so stands in the log.
func TestPanic(t *testing.T) {
	t.Parallel()
	const secret = "PASSWORD=hunter2"
	for name, with := range map[string]any{
		"a string": secret, "an error": errors.New(secret), "a value": struct{ Env string }{secret}, "bytes": []byte(secret),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAnswers(t)
			ctx, log := logged(t)
			out := a.Guard(hook, admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
				panic(with)
			})).Handle(ctx, admission.Request{})
			if !out.Allowed || len(out.Patches)+len(out.Patch) > 0 {
				t.Errorf("answer %+v", out)
			}
			if len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0], "let pass as it is") {
				t.Errorf("warnings %q", out.Warnings)
			}
			if n := testutil.ToFloat64(a.FailedOpen(hook, "panic")); n != 1 {
				t.Errorf("counted %v", n)
			}
			told := log.String() + strings.Join(out.Warnings, "")
			if out.Result != nil {
				told += out.Result.Message + string(out.Result.Reason)
			}
			if strings.Contains(told, "hunter2") {
				t.Errorf("tells the value: %s", told)
			}
			for _, want := range []string{"webhook panicked", hook, "answer_test.go"} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log does not tell %q: %s", want, log)
				}
			}
		})
	}
}

// TestPanicClosed: where nobody but an agent waits, a panic refuses, as something to try again, and tells no secret either.
func TestPanicClosed(t *testing.T) {
	t.Parallel()
	a := newAnswers(t)
	ctx, log := logged(t)
	out := a.GuardClosed(hook, admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		panic("PASSWORD=hunter2")
	})).Handle(ctx, admission.Request{})
	if out.Allowed || out.Result.Code != http.StatusServiceUnavailable || out.Result.Reason != "ServiceUnavailable" ||
		!strings.Contains(out.Result.Message, "try again") {
		t.Errorf("answer %+v", out)
	}
	if strings.Contains(log.String()+out.Result.Message, "hunter2") || !strings.Contains(log.String(), "answer_test.go") {
		t.Errorf("log %s, message %s", log, out.Result.Message)
	}
	if n := testutil.ToFloat64(a.failedClosed.WithLabelValues(hook, "panic")); n != 1 {
		t.Errorf("counted %v", n)
	}
	if n := testutil.CollectAndCount(a.failedOpen); n != 0 {
		t.Error("a refusal is counted as a pass")
	}
}

// TestGuardChangesNoAnswer: without a panic the handler's word holds and nothing is counted.
func TestGuardChangesNoAnswer(t *testing.T) {
	t.Parallel()
	a := newAnswers(t)
	ctx, log := logged(t)
	for _, want := range []admission.Response{admission.Denied("no"), admission.Allowed("yes").WithWarnings("w")} {
		h := admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return want })
		for _, guarded := range []admission.Handler{a.Guard(hook, h), a.GuardClosed(hook, h)} {
			got := guarded.Handle(ctx, admission.Request{})
			if got.Allowed != want.Allowed || got.Result.Message != want.Result.Message || len(got.Warnings) != len(want.Warnings) {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
	}
	if n := testutil.CollectAndCount(a.failedOpen) + testutil.CollectAndCount(a.failedClosed); n != 0 || log.Len() > 0 {
		t.Errorf("%d counters, log %q", n, log)
	}
}

func TestOpenAndRefuse(t *testing.T) {
	t.Parallel()
	a := newAnswers(t)
	if out := a.Open(hook, "decode", "the pod cannot be decoded"); !out.Allowed ||
		len(out.Warnings) != 1 || out.Warnings[0] != "koord-manager: the pod cannot be decoded; let pass as it is" {
		t.Errorf("%+v", out)
	}
	a.Count(hook, "decode")
	if n := testutil.ToFloat64(a.FailedOpen(hook, "decode")); n != 2 {
		t.Errorf("counted %v", n)
	}
	out := a.Refuse(hook, []string{"label a: no", "label b: never"})
	if out.Allowed || out.Result.Code != http.StatusForbidden || out.Result.Message != "label a: no; label b: never" {
		t.Errorf("%+v", out.Result)
	}
	if n := testutil.ToFloat64(a.refused.WithLabelValues(hook)); n != 1 {
		t.Errorf("counted %v", n)
	}
	if n := testutil.ToFloat64(a.refused.WithLabelValues("validate-pod")); n != 0 {
		t.Errorf("another webhook's: %v", n)
	}
}

// TestTook: each request is timed, also one at which the handler panics.
func TestTook(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	a, err := New(registry)
	if err != nil {
		t.Fatal(err)
	}
	ctx, _ := logged(t)
	for _, panics := range []bool{false, true, false} {
		a.Guard(hook, admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
			if panics {
				panic("here")
			}
			time.Sleep(3 * time.Millisecond)
			return admission.Allowed("")
		})).Handle(ctx, admission.Request{})
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if h := f.GetMetric()[0].GetHistogram(); f.GetName() == "koord_manager_webhook_seconds" {
			if h.GetSampleCount() != 3 || h.GetSampleSum() < 0.006 {
				t.Errorf("%d requests in %v s", h.GetSampleCount(), h.GetSampleSum())
			}
			return
		}
	}
	t.Error("nothing is timed")
}

// TestNewTwice: two sets of counters would each tell half.
func TestNewTwice(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	a, err := New(registry)
	if err != nil {
		t.Fatal(err)
	}
	a.Count(hook, "decode")
	a.Refuse(hook, nil)
	if n, err := testutil.GatherAndCount(registry, "koord_manager_webhook_failed_open_total", "koord_manager_webhook_refused_total"); err != nil || n != 2 {
		t.Errorf("%d metrics, %v", n, err)
	}
	if _, err := New(registry); !errors.As(err, &prometheus.AlreadyRegisteredError{}) {
		t.Errorf("error %v", err)
	}
}
