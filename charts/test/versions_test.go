package charttest

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

// TestTheExpressionsAreOldEnough: an API server takes new expressions only as
// far as the release before it could read them too.
func TestTheExpressionsAreOldEnough(t *testing.T) {
	objects, _ := decode(t, documents(everything(t)))
	policies := 0
	for _, object := range objects {
		switch p := object.(type) {
		case *admissionv1.MutatingAdmissionPolicy: // v1beta1 in 1.34
			policies++
			c := compilerOf(t, 33)
			for _, v := range p.Spec.Variables {
				c.variable(&mutating.Variable{Name: v.Name, Expression: v.Expression})
			}
			for _, m := range p.Spec.MatchConditions {
				c.expression((*matchconditions.MatchCondition)(&m))
			}
			for _, m := range p.Spec.Mutations {
				c.options.HasPatchTypes = true
				c.expression(&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression})
			}
		case *admissionv1.ValidatingAdmissionPolicy: // v1 in 1.30
			policies++
			c := compilerOf(t, 29)
			for _, v := range p.Spec.Variables {
				c.variable(&validating.Variable{Name: v.Name, Expression: v.Expression})
			}
			for _, v := range p.Spec.Validations {
				c.expression(&validating.ValidationCondition{Expression: v.Expression})
				if v.MessageExpression != "" {
					c.expression(&validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
				}
			}
		}
	}
	if policies != 3 {
		t.Errorf("%d policies", policies)
	}
}

type compiler struct {
	*testing.T
	*cel.CompositedCompiler
	options cel.OptionalVariableDeclarations
}

// compilerOf is the compiler of policies with what Kubernetes 1.minor knows.
func compilerOf(t *testing.T, minor uint) *compiler {
	t.Helper()
	c, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, minor)))
	if err != nil {
		t.Fatal(err)
	}
	return &compiler{T: t, CompositedCompiler: c}
}

func (c *compiler) variable(v cel.NamedExpressionAccessor) {
	c.Helper()
	c.report(c.CompileAndStoreVariable(v, c.options, environment.NewExpressions))
}

func (c *compiler) expression(e cel.ExpressionAccessor) {
	c.Helper()
	c.report(c.CompileCELExpression(e, c.options, environment.NewExpressions))
}

func (c *compiler) report(result cel.CompilationResult) {
	c.Helper()
	if result.Error != nil {
		c.Errorf("%v in\n%s", result.Error, result.ExpressionAccessor.GetExpression())
	}
}
