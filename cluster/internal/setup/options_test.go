// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"errors"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
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
	// Lists in parts, as Koordinator's flags have them, and all but some.
	if o, _, err := parse("--feature-gates=MultiQuotaTree=true,ReservationMutatingWebhook=true", "--feature-gates=DisableDefaultQuota=true,MultiQuotaTree=false", "--controllers=*", "--controllers=-noderesource,-colocationprofile"); err != nil ||
		!reflect.DeepEqual(o.Webhook.Gates, map[string]bool{"MultiQuotaTree": false, "ReservationMutatingWebhook": true, "DisableDefaultQuota": true}) ||
		!reflect.DeepEqual(o.Controllers, []string{"nodemetric", "nodeslo", "quotamirror", "quotaprofile"}) {
		t.Errorf("%+v, %v", o, err)
	}
	if o, _, err := parse("--controllers=*", "--feature-gates=WebhookFramework=false"); err != nil || len(o.Controllers) != 5 || o.Runs(RoleWebhook) || !o.Runs(RoleSLO) {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestUpstreamsGates: every feature gate that Koordinator's manager knows (1.8, and those that came later) is taken, and acts or is told to have
// no effect.
func TestUpstreamsGates(t *testing.T) {
	t.Parallel()
	for name := range strings.FieldsSeq(`AllAlpha AllBeta BindingAdmissionWebhook ColocationProfileController ColocationProfileSkipMutatingResources
		ColocationProfileSkipValidatingPriority ConfigMapValidatingWebhook DisableDefaultQuota DisableDeviceResourceSpec DisableExtendedResourceSpec
		DisablePVCReservation ElasticMutatingWebhook ElasticQuotaEnableUpdateResourceKey ElasticQuotaEvaluationTransformPod ElasticQuotaGuaranteeUsage
		ElasticQuotaIgnorePodOverhead ElasticValidatingWebhook EnablePodEnhancedValidator EnableQuotaAdmission EnableQuotaAdmissionOnUpdate
		EnableSyncGPUSharedResource MultiQuotaTree NodeMutatingWebhook NodeValidatingWebhook PodMutatingWebhook PodValidatingWebhook
		PreemptionPolicyTransformer PriorityTransformer ReplaceResourcesTransformer ReservationMutatingWebhook SupportParentQuotaSubmitPod
		ValidatePodDeviceResource WebhookFramework`) {
		o, notes, err := parse("--feature-gates=" + name + "=true")
		told := len(notes) == 1 && strings.Contains(notes[0], "feature gate "+name+"=true has no effect: ")
		if err != nil || told == o.Webhook.Gates[name] {
			t.Errorf("%s: %v, %q, %v", name, o.Webhook.Gates, notes, err)
		}
	}
}

// TestGatesAreDocumented: the guide has a line for each gate that acts, and for no other.
func TestGatesAreDocumented(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../docs/user/manager.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(guide), "\n| gate | true |\n")
	var told []string
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			break
		}
		if name := strings.Trim(cells[1], " `"); name != "---" {
			told = append(told, name)
		}
	}
	if want := slices.Sorted(maps.Keys(acting)); !slices.Equal(told, want) {
		t.Errorf("the guide tells %q, want %q", told, want)
	}
}

func TestRefusedOptions(t *testing.T) {
	t.Parallel()
	for arg, says := range map[string]string{
		"--controllers=-nodeslo": "nothing is left to do", "--controllers=*,-nodes": `"-nodes" is not known`,
		"--roles=slo,scheduler": `"scheduler" is not known; known are slo, webhook, recommender`, "--recommend-interval=1ms": "want at least 1s",
		"--recommend-cold-start=-1s": "no negative time", "--roles=": "nothing is left to do",
		"--controllers=nodes": `"nodes" is not known`, "--controllers=colocationprofile": "nothing is left to do", "--feature-gates=Nothing=true": `"Nothing" is not known`,
		"--feature-gates=MultiQuotaTree": "want Name=true or Name=false", "--feature-gates=WebhookFramework=true,WebhookFramework=false": "given twice",
		"--leader-elect-resource-lock=configmaps": "want leases", "--rest-config-qps=0": "want more than 0", "--sync-period=never": "want a duration",
		"--webhook-port=70000": "want 1..65535", "--slo-config-name=": "must not be empty", "more": `unexpected argument "more"`,
		"--unknown": "not defined", "--colocation-profile-update-pod-qps=0": "more than 0", "--colocation-profile-reconcile-interval=1ms": "at least 1s",
		"--roles=webhook --feature-gates=WebhookFramework=false": "WebhookFramework=false takes the role webhook out",
		"--colocation-profile-update-pod-qps=NaN":                "more than 0", "--orphan-keep=0s": "want at least 1s",
	} {
		if _, _, err := parse(strings.Fields(arg)...); err == nil || !errors.Is(err, ErrFlag) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", arg, err, says)
		}
	}
}
