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
		Metrics: ":8080", Health: ":8000", QPS: 500, Burst: 1000, ConfigNamespace: "koordinator-system", ConfigName: "slo-controller-config",
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

// TestUpstreamsFlags: every flag that Koordinator's manager knows (1.8.0, its libraries' among them, and those that came later) is taken, and acts or is told to have no
// effect, with the reason. Those without a value are its switches.
func TestUpstreamsFlags(t *testing.T) {
	t.Parallel()
	// What pprof-addr needs to act, and what has no other value than its default.
	base := []string{"--enable-pprof", "--leader-elect-resource-lock=leases"}
	plain, _, err := parse(base...)
	if err != nil {
		t.Fatal(err)
	}
	for why, flags := range map[string]string{
		"": `metrics-addr=:1 health-probe-addr=:1 pprof-addr=:1 enable-pprof=false enable-leader-election=false leader-election-namespace=x
			sync-period=1h rest-config-qps=1 rest-config-burst=1 controllers=*,-nodeslo config-namespace=x slo-config-name=x kubeconfig=/x v=4
			colocation-profile-reconcile-by-default colocation-profile-reconcile-interval=1m colocation-profile-update-pod-qps=1
			colocation-profile-update-pod-qps-burst=1 feature-gates=MultiQuotaTree=true`,
		"nodes and pods of every namespace are watched":      `namespace=x`,
		"each round looks at all pods that wait":             `colocation-profile-force-update-pod-duration=5m colocation-profile-expire-pod-cache-duration=10m`,
		"what a node's resources are made of is compiled in": `noderesource-plugins=BatchResource`,
		"names of node strategies are always checked":        `node-strategy-name-need-check=true`,
		"rules of your own for pods belong into a ValidatingAdmissionPolicy": `pod-enhanced-validator-config-namespace=x pod-enhanced-validator-config-name=x
			pod-enhanced-validator-reconcile-interval=5m`,
		"what a quota's pods ask for together is not counted": `quota-update-max-retries=3 quota-update-retry-jitter=0 quota-update-max-total-jitter=1s
			quota-update-conflict-fresh-get`,
		"bindings are not looked at": `binding-admission-user-name=x binding-admission-dry-run binding-admission-namespaces=x binding-admission-exclude-namespaces=x
			binding-admission-bypass-labels=x binding-admission-bypass-annotations=x`,
		"logs go to standard error": `logtostderr alsologtostderr add_dir_header one_output skip_headers skip_log_headers log_dir=/x log_file=/x log_file_max_size=1
			log_backtrace_at=a.go:1 stderrthreshold=2 vmodule=a=4`,
	} {
		for arg := range strings.FieldsSeq(flags) {
			o, notes, err := parse(append(slices.Clone(base), "--"+arg)...)
			name, _, _ := strings.Cut(arg, "=")
			told := len(notes) == 1 && strings.HasPrefix(notes[0], "--"+name+" has no effect: ") && strings.Contains(notes[0], why)
			changed := !reflect.DeepEqual(o, plain)
			if acts := why == ""; err != nil || changed != acts || told == acts || acts && len(notes) > 0 {
				t.Errorf("--%s: %v, %q, %+v, want %q", arg, err, notes, o, why)
			}
		}
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
