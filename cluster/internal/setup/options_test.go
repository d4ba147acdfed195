// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

func parse(args ...string) (Options, []string, error) {
	return Parse(args, func(string) string { return "" }, io.Discard)
}

// TestUpstreamsCommandLine: the arguments of Koordinator's own manifest are understood.
func TestUpstreamsCommandLine(t *testing.T) {
	t.Parallel()
	o, notes, err := parse("--enable-leader-election", "--metrics-addr=:8080", "--health-probe-addr=:8000",
		"--leader-election-namespace=koordinator-system", "--config-namespace=koordinator-system", "--v=4", "--feature-gates=", "--sync-period=0")
	if err != nil || len(notes) > 0 {
		t.Fatal(err, notes)
	}
	want := Options{
		Roles: []string{"slo", "webhook"}, Controllers: []string{"nodemetric", "noderesource", "nodeslo", "quotamirror", "quotaprofile"}, Elect: true, Namespace: "koordinator-system",
		Metrics: ":8080", Health: ":8000", QPS: 300, Burst: 500, ConfigNamespace: "koordinator-system", ConfigName: "slo-controller-config",
		Orphan: 10 * time.Minute, Reapply: Reapply{Interval: 30 * time.Second, QPS: 10, Burst: 100},
		LogLevel: "debug", LogFormat: "text", Recommend: Recommend{Every: time.Minute, ColdStart: time.Hour}, Webhook: Webhook{Port: 9876, Gates: map[string]bool{}},
	}
	if !reflect.DeepEqual(o, want) {
		t.Errorf("have %+v\nwant %+v", o, want)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	o, notes, err := Parse([]string{
		"--roles=slo", "--controllers=nodeslo, quotaprofile, colocationprofile", "--enable-leader-election=false", "--enable-pprof", "--rest-config-qps=-1",
		"--sync-period=10m", "--feature-gates=DisableExtendedResourceSpec=true,EnableQuotaAdmission=true", "--namespace=x", "--logtostderr",
		"--webhook-cert-hosts=127.0.0.1,localhost", "--scheduler-users=a,b", "--colocation-profile-expire-pod-cache-duration=3m",
	}, func(name string) string {
		return map[string]string{"POD_NAMESPACE": "mine", "WEBHOOK_PORT": "9443"}[name]
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(o.Roles, []string{"slo"}) || !reflect.DeepEqual(o.Controllers, []string{"nodeslo", "quotaprofile"}) || o.Elect || o.Namespace != "mine" ||
		o.Pprof != ":8090" || o.QPS != -1 || o.Resync != 10*time.Minute || o.LogLevel != "info" || o.Webhook.Port != 9443 ||
		!reflect.DeepEqual(o.Webhook.Hosts, []string{"127.0.0.1", "localhost"}) || !reflect.DeepEqual(o.Webhook.SchedulerUsers, []string{"a", "b"}) ||
		!reflect.DeepEqual(o.Webhook.Gates, map[string]bool{"DisableExtendedResourceSpec": true}) {
		t.Errorf("%+v", o)
	}
	all := strings.Join(notes, "\n")
	for _, want := range []string{"--namespace has no effect", "--logtostderr has no effect", "colocationprofile has no effect: the feature gate",
		"--colocation-profile-expire-pod-cache-duration has no effect", "feature gate EnableQuotaAdmission=true has no effect"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not said: %s", want, all)
		}
	}
	if len(notes) != 5 {
		t.Errorf("%d notes: %s", len(notes), all)
	}
	if o, notes, err := parse("--feature-gates=EnableSyncGPUSharedResource=true"); err != nil || len(notes) != 0 || !o.SharedGPU {
		t.Errorf("%+v, %q, %v", o, notes, err)
	}
	if o, notes, err := parse("--feature-gates=ColocationProfileController=true", "--colocation-profile-reconcile-by-default", "--colocation-profile-reconcile-interval=5s",
		"--colocation-profile-update-pod-qps=0.5", "--colocation-profile-update-pod-qps-burst=7"); err != nil || len(notes) != 0 ||
		o.Reapply != (Reapply{On: true, All: true, Interval: 5 * time.Second, QPS: 0.5, Burst: 7}) {
		t.Errorf("%+v, %q, %v", o.Reapply, notes, err)
	}
	if o, _, err := parse("--controllers=*", "--feature-gates=WebhookFramework=false"); err != nil || len(o.Controllers) != 5 || o.Runs(RoleWebhook) || !o.Runs(RoleSLO) {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestRefusedOptions(t *testing.T) {
	t.Parallel()
	for arg, says := range map[string]string{
		"--roles=slo,scheduler": `"scheduler" is not known; known are slo, webhook, recommender`, "--recommend-interval=1ms": "want at least 1s",
		"--recommend-cold-start=-1s": "no negative time", "--roles=": "nothing is left to do",
		"--controllers=nodes": `"nodes" is not known`, "--controllers=colocationprofile": "nothing is left to do", "--feature-gates=Nothing=true": `"Nothing" is not known`,
		"--feature-gates=MultiQuotaTree": "want Name=true or Name=false", "--feature-gates=WebhookFramework=true,WebhookFramework=false": "given twice",
		"--leader-elect-resource-lock=configmaps": "want leases", "--rest-config-qps=0": "want more than 0", "--sync-period=never": "want a duration",
		"--webhook-port=70000": "want 1..65535", "--slo-config-name=": "must not be empty", "more": `unexpected argument "more"`,
		"--unknown": "not defined", "--colocation-profile-update-pod-qps=0": "more than 0", "--colocation-profile-reconcile-interval=1ms": "at least 1s",
		"--colocation-profile-update-pod-qps=NaN": "more than 0", "--orphan-keep=0s": "want at least 1s",
	} {
		if _, _, err := parse(arg); err == nil || !errors.Is(err, ErrFlag) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", arg, err, says)
		}
	}
}
