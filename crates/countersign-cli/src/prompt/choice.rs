//! What a person may choose.

use countersign::grant::RememberScope;

/// One thing on the bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Leave the question open and say nothing.
    Leave,
    /// Say no, with a reason.
    Deny,
    /// Say yes.
    Approve,
    /// Say yes to other arguments.
    Edit,
    /// Say yes, and give the tool something along with it.
    Payload,
    /// Answer instead of the tool.
    Respond,
    /// Say yes, and remember it.
    Remember,
    /// Not this; back to the question.
    Back,
    /// Say yes to the arguments as edited.
    ApproveEdited,
    /// Name the fields that must stay the same.
    Fields,
    /// Say yes, with what was written for the tool.
    ApproveAlong,
    /// Look at what would cover more than this call.
    Widen,
    /// Say yes, and remember it there.
    RememberIn(RememberScope),
}

impl Choice {
    /// The key that takes it at once.
    pub(crate) fn letter(self) -> char {
        match self {
            Choice::Leave => 'l',
            Choice::Deny => 'd',
            Choice::Approve | Choice::ApproveEdited | Choice::ApproveAlong => 'a',
            Choice::Edit => 'e',
            Choice::Payload => 'p',
            Choice::Respond => 'r',
            Choice::Remember => 'm',
            Choice::Back => 'b',
            Choice::Fields => 'f',
            Choice::Widen => 't',
            Choice::RememberIn(RememberScope::Session) => 's',
            Choice::RememberIn(RememberScope::Global) => 'g',
        }
    }

    /// Its name on the bar.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Choice::Leave => "Leave it",
            Choice::Deny => "Deny",
            Choice::Approve => "Approve",
            Choice::Edit => "Edit",
            Choice::Payload => "Add",
            Choice::Respond => "Respond",
            Choice::Remember => "Remember",
            Choice::Back => "Back",
            Choice::ApproveEdited => "Approve as edited",
            Choice::Fields => "By fields",
            Choice::ApproveAlong => "Approve with it",
            Choice::Widen => "The whole tool",
            Choice::RememberIn(RememberScope::Session) => "For this session",
            Choice::RememberIn(RememberScope::Global) => "For every session",
        }
    }

    /// What comes of it.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Choice::Leave => "Decides nothing. The call goes on waiting.",
            Choice::Deny => "The call does not run. You may tell the agent why.",
            Choice::Approve => "Exactly this runs, once.",
            Choice::Edit => "Change the arguments. They are checked and judged again before they run.",
            Choice::Payload => "Approve, and give the tool something beside its arguments. Shows it first.",
            Choice::Respond => "The call does not run. The agent gets your words as its result.",
            Choice::Remember => "Approve, and allow the same call from now on. Shows the rule first.",
            Choice::Back => "Nothing is decided yet.",
            Choice::ApproveEdited => "Exactly the edited arguments run, once.",
            Choice::Fields => "Name the fields that must stay the same; others may change. Shows the rule first.",
            Choice::ApproveAlong => "Exactly the call runs, once; the tool gets this along with your yes.",
            Choice::Widen => "Shows the rules that would allow this tool with any arguments. Decides nothing yet.",
            Choice::RememberIn(RememberScope::Session) => "Approve, and do not ask again in this session.",
            Choice::RememberIn(RememberScope::Global) => "Approve, and do not ask again in any session.",
        }
    }

    /// Whether it lets something run. Such a choice sleeps until all was shown, and for a moment after.
    pub(crate) fn approves(self) -> bool {
        match self {
            Choice::Approve | Choice::ApproveEdited | Choice::ApproveAlong | Choice::RememberIn(_) => true,
            Choice::Leave
            | Choice::Deny
            | Choice::Edit
            | Choice::Payload
            | Choice::Respond
            | Choice::Remember
            | Choice::Back
            | Choice::Fields
            | Choice::Widen => false,
        }
    }
}
