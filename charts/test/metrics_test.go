package charttest

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// everything renders the ci file in which all is on.
func everything(t *testing.T) map[string]string {
	t.Helper()
	return render(t, ciValues(t)["everything"])
}

// foreign reads the one document of a kind that is not Kubernetes' own, as
// strictly as the API server does with the types of the kind's operator.
func foreign(t *testing.T, files map[string]string, kind string, into any) {
	t.Helper()
	found := 0
	for _, document := range documents(files) {
		if regexp.MustCompile(`(?m)^kind: ` + kind + `$`).Match(document) {
			found++
			if err := yaml.UnmarshalStrict(document, into); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
		}
	}
	if found != 1 {
		t.Fatalf("%d documents of the kind %s", found, kind)
	}
}

func TestThePodMonitorFindsTheSidecar(t *testing.T) {
	var monitor monitoringv1.PodMonitor
	foreign(t, everything(t), "PodMonitor", &monitor)
	pod := plainPod()
	result := installed(t, ciValues(t)["everything"]).create(t, pod)
	for name, value := range monitor.Spec.Selector.MatchLabels {
		if pod.Labels[name] != value {
			t.Errorf("it selects %s=%s", name, value)
		}
	}
	endpoint := monitor.Spec.PodMetricsEndpoints[0]
	port := result.pod.Spec.InitContainers[0].Ports[0]
	if endpoint.Port == nil || *endpoint.Port != port.Name || endpoint.Path != "/metrics" || !monitor.Spec.NamespaceSelector.Any {
		t.Errorf("endpoint %+v of the port %+v", endpoint, port)
	}
	if monitor.Labels["release"] != "prometheus" || monitor.Labels["team"] != "platform" {
		t.Errorf("labels %v", monitor.Labels)
	}
}

// served are the metrics of a fresh process: each name with its type and the
// sets of labels that it has. The product's own tests keep the page true.
type served struct {
	types  map[string]string
	series map[string][]map[string]string
}

func readServed(t *testing.T) served {
	t.Helper()
	page, err := os.ReadFile("../../internal/metrics/testdata/fresh_page.txt")
	if err != nil {
		t.Fatal(err)
	}
	s := served{map[string]string{}, map[string][]map[string]string{}}
	for line := range strings.Lines(string(page)) {
		if words := strings.Fields(line); len(words) == 4 && words[1] == "TYPE" {
			s.types[words[2]] = words[3]
			continue
		}
		parts := regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? `).FindStringSubmatch(line)
		if parts == nil {
			continue
		}
		set := map[string]string{}
		for _, pair := range regexp.MustCompile(`([a-z]+)="([^"]*)"`).FindAllStringSubmatch(parts[2], -1) {
			set[pair[1]] = pair[2]
		}
		s.series[parts[1]] = append(s.series[parts[1]], set)
	}
	if len(s.types) < 20 {
		t.Fatalf("only %d metrics on the page", len(s.types))
	}
	return s
}

// added are labels that a scrape adds, and le, which the page has only once
// something has been observed.
var added = []string{model.MetricNameLabel, "namespace", "pod", "le"}

// check parses an expression and looks for each of its metrics among the
// served ones.
func (s served) check(t *testing.T, where, expression string) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		t.Errorf("%s: %v in %s", where, err, expression)
		return
	}
	selectors := 0
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			selectors++
			s.selector(t, where, n)
		case *parser.AggregateExpr:
			for _, name := range n.Grouping {
				if !s.hasLabel(name) {
					t.Errorf("%s: by %s, which no metric has", where, name)
				}
			}
		}
		return nil
	})
	if selectors == 0 {
		t.Errorf("%s: %s asks for no metric", where, expression)
	}
}

func (s served) selector(t *testing.T, where string, n *parser.VectorSelector) {
	t.Helper()
	series := s.series[n.Name]
	if base, ok := strings.CutSuffix(n.Name, "_bucket"); ok && s.types[base] == "histogram" {
		series = s.series[base+"_count"]
	} else if s.types[n.Name] == "" || s.types[n.Name] == "histogram" {
		t.Errorf("%s: %s is not served", where, n.Name)
		return
	}
	if len(series) == 0 {
		return // it has series only once there is something to tell
	}
	for _, set := range series {
		matches := true
		for _, m := range n.LabelMatchers {
			if value, ok := set[m.Name]; ok || !contains(added, m.Name) {
				matches = matches && m.Matches(value)
			}
		}
		if matches {
			return
		}
	}
	t.Errorf("%s: %s has no series like %v", where, n.Name, n.LabelMatchers)
}

func (s served) hasLabel(name string) bool {
	if contains(added, name) {
		return true
	}
	for _, series := range s.series {
		for _, set := range series {
			if _, ok := set[name]; ok {
				return true
			}
		}
	}
	return false
}

func contains(all []string, one string) bool {
	return strings.Contains(" "+strings.Join(all, " ")+" ", " "+one+" ")
}

func TestEveryAlertAsksForWhatIsServed(t *testing.T) {
	var rule monitoringv1.PrometheusRule
	foreign(t, everything(t), "PrometheusRule", &rule)
	s := readServed(t)
	alerts := map[string]bool{}
	for _, group := range rule.Spec.Groups {
		for _, r := range group.Rules {
			alerts[r.Alert] = true
			s.check(t, r.Alert, r.Expr.String())
			if r.For != nil {
				if _, err := model.ParseDuration(string(*r.For)); err != nil {
					t.Errorf("%s: %v", r.Alert, err)
				}
			}
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s: labels %v, annotations %v", r.Alert, r.Labels, r.Annotations)
			}
			// A label in the text that the expression has not kept would be empty.
			for _, label := range regexp.MustCompile(`\$labels\.([a-z]+)`).FindAllStringSubmatch(r.Annotations["summary"]+r.Annotations["description"], -1) {
				if !regexp.MustCompile(`by \([^)]*\b` + label[1] + `\b`).MatchString(r.Expr.String()) {
					t.Errorf("%s: its text has the label %s, its expression has not", r.Alert, label[1])
				}
			}
		}
	}
	for _, want := range []string{"LocksidecarLockLost", "LocksidecarRenewalLate", "LocksidecarStoreUnreachable", "LocksidecarLocksLeftToExpire"} {
		if !alerts[want] {
			t.Errorf("no alert %s among %v", want, alerts)
		}
	}
	if rule.Namespace != "monitoring" {
		t.Errorf("namespace %s", rule.Namespace)
	}
}

func TestEveryPanelAsksForWhatIsServed(t *testing.T) {
	objects, _ := decode(t, documents(everything(t)))
	var dashboard *corev1.ConfigMap
	for _, object := range objects {
		if c, ok := object.(*corev1.ConfigMap); ok {
			dashboard = c
		}
	}
	if dashboard == nil || dashboard.Labels["grafana_dashboard"] != "1" {
		t.Fatalf("%+v", dashboard)
	}
	var content struct {
		Title      string
		Panels     []panel
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
	}
	if err := json.Unmarshal([]byte(dashboard.Data["locksidecar.json"]), &content); err != nil {
		t.Fatal(err)
	}
	s := readServed(t)
	// What Grafana puts in for its variables.
	replace := strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*", "$pod", ".*")
	ids, expressions := map[int]bool{}, 0
	for _, p := range content.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("the panel %s asks for nothing", p.Title)
		}
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("the panel %s is wider than the page", p.Title)
		}
		for _, target := range p.Targets {
			expressions++
			s.check(t, p.Title, replace.Replace(target.Expr))
			for _, label := range regexp.MustCompile(`\{\{([a-z]+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !s.hasLabel(label[1]) {
					t.Errorf("%s: its legend has the label %s, which no metric has", p.Title, label[1])
				}
			}
		}
	}
	for _, variable := range content.Templating.List {
		if query := regexp.MustCompile(`^label_values\((.*), [a-z]+\)$`).FindStringSubmatch(variable.Definition); query != nil {
			s.check(t, variable.Name, replace.Replace(query[1]))
		} else if variable.Type == "query" {
			t.Errorf("the variable %s asks for %q", variable.Name, variable.Definition)
		}
	}
	if expressions < 20 {
		t.Errorf("only %d expressions", expressions)
	}
}

type panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ X, W int }
	Targets     []struct{ Expr, LegendFormat string }
}

func TestMetricsAreOffByDefault(t *testing.T) {
	objects, others := decode(t, documents(render(t, minimal())))
	for _, object := range objects {
		if _, ok := object.(*corev1.ConfigMap); ok || len(others) > 0 {
			t.Errorf("%v, %v", runtime.Object(object), others)
		}
	}
}
