// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
)

const koordletHead = "apiVersion: koord-rt.dev/v1alpha1\nkind: KoordletConfig\n"

func koordlet() document[config.Koordlet] {
	return document[config.Koordlet]{config.KindKoordlet, config.DefaultKoordlet, config.LoadKoordlet, (*config.Koordlet).Validate}
}

func TestLoadKoordletRefuses(t *testing.T) {
	t.Parallel()
	koordlet().refuses(t, map[string]refusal{
		"another program's": {proxyHead, config.ErrDocument, []string{"KoordletConfig"}},
	})
}

func TestLoadKoordlet(t *testing.T) {
	t.Parallel()
	got, spec, err := config.LoadKoordlet([]byte(koordletHead + `
nodeName: node-1
runtimeEndpoint: unix:///run/p.sock
kubelet: {endpoint: "", interval: 5s}
apiServer: {mode: off}
pressure: {stall: 0s}
evict: {mode: observe, gracePeriod: 5s}
predict: {enable: false, coldStart: 1h, safetyMarginPercent: 20}
tune: true
strategy:
  resourceThresholdStrategy: {thresholds: {cpu-suppress-percent: 60}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if spec == nil {
		t.Error("the strategy was not read")
	}
	want := config.DefaultKoordlet()
	want.NodeName, want.RuntimeEndpoint = "node-1", "unix:///run/p.sock"
	want.Kubelet.Endpoint, want.Kubelet.Interval = "", config.Duration(5*time.Second)
	want.APIServer.Mode, want.Pressure.Stall = config.APIServerOff, 0
	want.Evict.Mode, want.Evict.GracePeriod = config.ModeObserve, config.Duration(5*time.Second)
	want.Predict.Enable, want.Predict.ColdStart, want.Predict.SafetyMarginPercent = false, config.Duration(time.Hour), 20
	want.Tune = true
	if !reflect.DeepEqual(got, want) || got.RuntimePath() != "/run/p.sock" {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestKoordletErrorsNameTheSetting(t *testing.T) {
	t.Parallel()
	for text, key := range map[string]string{
		"nodeName: a/b":                          "nodeName",
		"runtimeEndpoint: c.sock":                "runtimeEndpoint",
		"kubelet: {endpoint: ftp://a}":           "kubelet.endpoint",
		"kubelet: {endpoint: \"https://u:p@a\"}": "kubelet.endpoint",
		"kubelet: {caFile: ca.crt}":              "kubelet.caFile",
		"kubelet: {certFile: /c}":                "kubelet.keyFile",
		"kubelet: {interval: 1ms}":               "kubelet.interval",
		"apiServer: {mode: on}":                  "apiServer.mode",
		"apiServer: {kubeconfig: ../k}":          "apiServer.kubeconfig",
		"collect: {interval: 100ms}":             "collect.interval",
		"collect: {interval: 20s}":               "collect.slowInterval",
		"pressure: {stall: 1s}":                  "pressure.stall",
		"pressure: {window: 100ms}":              "pressure.window",
		"evict: {mode: sometimes}":               "evict.mode",
		"evict: {gracePeriod: -1s}":              "evict.gracePeriod",
		"evict: {memoryCooldown: 0s}":            "evict.memoryCooldown",
		"predict: {interval: 1s}":                "predict.interval",
		"predict: {coldStart: -1s}":              "predict.coldStart",
		"predict: {safetyMarginPercent: 1001}":   "predict.safetyMarginPercent",
		"predict: {cpuHalfLife: 1s}":             "predict.cpuHalfLife",
		"predict: {memoryHalfLife: 0s}":          "predict.memoryHalfLife",
		"predict: {enable: perhaps}":             "predict",
		"evict: {features: [CPUEvict, Flying]}":  "evict.features",
		"evict: {stopContainers: always}":        "evict.stopContainers",
		"interference: {history: 1s}":            "interference.history",
		"interference: {trial: 1s}":              "interference.trial",
		"interference: {calm: 2h}":               "interference.calm",
		"kubelet: {configFile: x.yaml}":          "kubelet.configFile",
		"tune: perhaps":                          "tune",
		"collect: {interval: 21s}":               "predict.interval",
		"reconnect: {min: 1ns}":                  "reconnect.min",
		"features: {flying: off}":                "features",
		"unknown: 1":                             "unknown",
		"metrics: {address: \"0.0.0.0:9316\"}":   "metrics.address",
		"kubelet: {skipVerify: perhaps}":         "skipVerify",

		"predict: {cpuPercentile: 97}":                               "predict.cpuPercentile",
		"predict: {memoryPercentile: 0}":                             "predict.memoryPercentile",
		"predict: {classes: {prod: {}}}":                             "predict.classes",
		"predict: {classes: {system: {flying: 1}}}":                  "flying",
		"predict: {classes: {koord-mid: {safetyMarginPercent: -1}}}": "predict.classes.koord-mid.safetyMarginPercent",
		"predict: {classes: {none: {memoryPercentile: 50}}}":         "predict.classes.none.memoryPercentile",
	} {
		_, _, err := config.LoadKoordlet([]byte(koordletHead + text + "\n"))
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: error %v does not name %s", text, err, key)
		}
	}
	if _, _, err := config.LoadKoordlet([]byte(proxyHead)); !errors.Is(err, config.ErrDocument) {
		t.Errorf("another program's document: %v", err)
	}
}

func FuzzLoadKoordlet(f *testing.F) {
	f.Add([]byte(koordletHead + "kubelet: {endpoint: \"https://[::1]:1/\"}\npressure: {stall: 0s, window: 1s}\n"))
	f.Add([]byte(koordletHead + "runtimeEndpoint: unix:x\nevict: {mode: observe}\n"))
	koordlet().fuzz(f)
}
